"""A sandbox agent of the OpenAI Agents SDK in a sandbox of a mesh, by the SDK's client for E2B; then its session."""

import asyncio
import io
from pathlib import Path

from agents import RunConfig, Runner, set_default_openai_api, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.capabilities import Shell
from e2b import AsyncSandbox

TASK = "How many primes are below 10,000?"
OPTIONS = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, pause_on_exit=True)

set_tracing_disabled(True)
set_default_openai_api("chat_completions")


async def main() -> None:
    """Run an agent, then a terminal, files, and a session that is resumed."""
    client = E2BSandboxClient()
    agent = SandboxAgent(name="counter", model="gpt-5-mini", capabilities=[Shell()])
    session = await client.create(options=OPTIONS)
    async with session:
        result = await Runner.run(agent, TASK, run_config=RunConfig(sandbox=SandboxRunConfig(session=session)))
        await session.write(Path("note.txt"), io.BytesIO(b"kept"))
        terminal = await session.pty_exec_start("read line && echo typed $line", tty=True)
        said = await session.pty_write_stdin(session_id=terminal.process_id, chars="hello\n")
        assert b"typed hello" in said.output, said
        assert (await session.persist_workspace()).read()
        saved = client.serialize_session_state(session.state)
    # The block's end has paused the sandbox.
    resumed = await client.resume(client.deserialize_session_state(saved))
    async with resumed:
        assert (await resumed.read(Path("note.txt"))).read() == b"kept"
    # `client.delete` would end no sandbox: the one that the block's end paused again is ended here.
    await AsyncSandbox.kill(resumed.state.sandbox_id)
    print(result.final_output)


asyncio.run(main())
