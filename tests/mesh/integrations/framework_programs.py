"""The programs of frameworks in examples/, with the packages that they run with."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.environments import environment_of, with_sdk
from tests.mesh.doors.e2b.e2b_world import World
from tests.mesh.integrations.scripted_model import CODE, EXAMPLES, ScriptedModel
from tests.npm import install

NODE: Final = EXAMPLES / "integrations" / "node"
ANSWER: Final = "There are 1229."
SHELL: Final = f"python3 -c '{CODE}'"
SECONDS: Final = 150
E2B: Final = ("e2b==2.63.0", "e2b-code-interpreter==2.11.5")
AGENTS: Final = (
    *E2B,
    "openai-agents==0.24.0",
    "deepagents==0.7.32",
    "langchain==1.5.2",
    "langchain-openai==1.7.4",
    "pydantic-ai-harness==0.62.0",
    "pydantic-ai-slim[openai]==2.62.0",
    "agent-framework-core==1.23.0",
    "agent-framework-openai==1.17.0",
)
# They ask for an older protobuf, or an older client of OpenAI, than the others.
OLDER: Final = (
    *E2B,
    "autogen-agentchat==0.7.5",
    "autogen-ext[openai]==0.7.5",
    "llama-index-core==0.14.25",
    "llama-index-llms-openai-like==0.8.1",
)
ADK: Final = ("google-adk[e2b]==2.13.0", "e2b==2.63.0")
CREWAI: Final = ("crewai==1.15.30", "crewai-tools==1.15.30", "e2b-code-interpreter==2.11.5")
SMOLAGENTS: Final = ("smolagents[e2b]==1.26.0",)
# Its metadata asks for a deepagents below 0.7; it works with this one.
LANGCHAIN_E2B: Final = "langchain-e2b==0.0.6"


@dataclass(frozen=True)
class Program:
    """A program of `examples/`: what the table says of it, what it is installed with, and what its model asks for."""

    framework: str
    page: str
    form: str
    file: str
    packages: tuple[str, ...]
    """What the table names, with versions."""
    tool: str = "run_ipython_cell"
    argument: str = "code"
    requirements: tuple[str, ...] = ()
    """Of its environment; without any it is this repository's own, and for Node what the lock file says."""
    own: bool = False
    """Whether it uses the SDK."""
    answer: str = ANSWER
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def arguments(self) -> dict[str, str]:
        """What the model asks the tool for."""
        return {self.argument: CODE if self.argument == "code" else SHELL}

    @property
    def command(self) -> str:
        """How a user runs it."""
        return f"{'node' if self.file.endswith('.mjs') else 'python'} examples/{self.file}"


PROGRAMS: Final = (
    Program(
        framework="OpenAI Agents SDK",
        page="openai-agents.md",
        form="`E2BSandboxClient`: agent, terminal, files, pause, resume",
        file="integrations/openai_agents_sandbox.py",
        packages=("openai-agents", "e2b"),
        tool="exec_command",
        argument="cmd",
        requirements=AGENTS,
    ),
    Program(
        framework="OpenAI Agents SDK",
        page="openai-agents.md",
        form="tools of the SDK",
        file="frameworks/openai_agents_agent.py",
        packages=("openai-agents",),
    ),
    Program(
        framework="deepagents",
        page="langchain.md",
        form="backend of `langchain-e2b`",
        file="integrations/deepagents_backend.py",
        packages=("deepagents", "langchain-e2b", "e2b"),
        tool="execute",
        argument="command",
        requirements=AGENTS,
    ),
    Program(
        framework="deepagents",
        page="langchain.md",
        form="`SandmeshSandbox` of the SDK",
        file="integrations/deepagents_sandmesh.py",
        packages=("deepagents",),
        tool="execute",
        argument="command",
        requirements=AGENTS,
        own=True,
    ),
    Program(
        framework="LangChain, LangGraph",
        page="langchain.md",
        form="tools of the SDK",
        file="frameworks/langchain_agent.py",
        packages=("langchain",),
    ),
    Program(
        framework="Google ADK",
        page="google-adk.md",
        form="`E2BEnvironment`",
        file="integrations/google_adk_environment.py",
        packages=("google-adk", "e2b"),
        tool="Execute",
        argument="command",
        requirements=ADK,
    ),
    Program(
        framework="CrewAI",
        page="crewai.md",
        form="`E2BPythonTool`",
        file="integrations/crewai_tool.py",
        packages=("crewai-tools", "e2b-code-interpreter"),
        tool="e2b_sandbox_python",
        requirements=CREWAI,
        variables={"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"},
    ),
    Program(
        framework="pydantic-ai",
        page="pydantic-ai.md",
        form="workspace of `pydantic-ai-harness`",
        file="integrations/pydantic_ai_workspace.py",
        packages=("pydantic-ai-harness", "pydantic-ai-slim", "e2b"),
        tool="run_command",
        argument="command",
        requirements=AGENTS,
    ),
    Program(
        framework="pydantic-ai",
        page="pydantic-ai.md",
        form="tools of the SDK",
        file="frameworks/pydantic_ai_agent.py",
        packages=("pydantic-ai-slim",),
    ),
    Program(
        framework="Microsoft Agent Framework",
        page="agent-framework.md",
        form="tools of the SDK",
        file="integrations/agent_framework_agent.py",
        packages=("agent-framework-core",),
        requirements=AGENTS,
        own=True,
    ),
    Program(
        framework="AutoGen",
        page="agent-framework.md",
        form="a tool over E2B's client",
        file="integrations/autogen_agent.py",
        packages=("autogen-agentchat", "e2b-code-interpreter"),
        tool="run_python",
        requirements=OLDER,
    ),
    Program(
        framework="LlamaIndex",
        page="llama-index.md",
        form="a tool over E2B's client",
        file="integrations/llama_index_agent.py",
        packages=("llama-index-core", "e2b-code-interpreter"),
        tool="run_python",
        requirements=OLDER,
    ),
    Program(
        framework="smolagents",
        page="smolagents.md",
        form='`executor_type="e2b"`',
        file="e2b/executor.py",
        packages=("smolagents", "e2b"),
        requirements=SMOLAGENTS,
        answer="every call answered",
    ),
    Program(
        framework="Mastra",
        page="mastra.md",
        form="`E2BSandbox` of `@mastra/e2b`",
        file="integrations/node/mastra.mjs",
        packages=("@mastra/core", "@mastra/e2b", "e2b"),
        tool="mastra_workspace_execute_command",
        argument="command",
    ),
    Program(
        framework="Vercel AI SDK",
        page="ai-sdk.md",
        form="a tool over E2B's client",
        file="integrations/node/ai_sdk.mjs",
        packages=("ai", "@e2b/code-interpreter"),
        tool="runPython",
    ),
    Program(
        framework="ComputeSDK",
        page="computesdk.md",
        form="`@computesdk/e2b`",
        file="integrations/node/computesdk.mjs",
        packages=("computesdk", "@computesdk/e2b", "e2b"),
    ),
)


def node_packages(folder: Path) -> Path:
    """Install Node's packages, as their lock file says, beside a copy of the programs."""
    shutil.copytree(NODE, folder, ignore=shutil.ignore_patterns("node_modules"))
    install(folder, "npm")
    return folder


def python_of(program: Program) -> Path:
    """Return the interpreter that has a program's packages."""
    if not program.requirements:
        return Path(sys.executable)
    alone = (LANGCHAIN_E2B,) if program.requirements is AGENTS else ()
    return environment_of(*program.requirements, with_own=program.requirements is AGENTS, alone=alone)


async def run_program(program: Program, world: World, model: ScriptedModel, node: Path) -> list[str]:
    """Run a program on a mesh with a model, and return the lines that it prints: frameworks may add some."""
    if program.file.endswith(".mjs"):
        command = ["node", str(node / Path(program.file).name)]
    else:
        command = [str(await asyncio.to_thread(python_of, program)), str(EXAMPLES / program.file)]
    name = Path(program.file).stem.replace("_", "-")
    variables = {
        **world.mesh.e2b,
        **model.environment,
        **program.variables,
        "E2B_API_KEY": await world.key(name),
        "SANDMESH_ADDRESS": world.mesh.addresses[0],
    }
    environment = {**(with_sdk(node.parent) if program.own else os.environ), **variables}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()
