"""An agent of pydantic-ai whose workspace is a sandbox of a mesh, by the harness' own backend for E2B."""

import asyncio

from e2b import AsyncSandbox
from pydantic_ai import Agent
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai_harness.e2b_sandbox import E2BSandbox
from pydantic_ai_harness.shell import Shell


async def main() -> None:
    """Run one agent to its answer."""
    async with await AsyncSandbox.create() as box:
        workspace = WorkspaceRef(provider="e2b", id=box.sandbox_id)
        agent = Agent("openai-chat:gpt-5-mini", capabilities=[E2BSandbox(), Shell()])
        result = await agent.run("How many primes are below 10,000?", workspace=workspace)
    print(result.output)


asyncio.run(main())
