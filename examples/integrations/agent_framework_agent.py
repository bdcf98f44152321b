"""An agent of Microsoft's Agent Framework with the tools of a sandbox, by the SDK."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from sandmesh import BaseSandboxAsync
from sandmesh.tools import run_ipython_cell, run_shell_command


async def main() -> None:
    """Run one agent to its answer."""
    async with BaseSandboxAsync() as box:
        tools = [tool.bind(box).make_function() for tool in (run_ipython_cell, run_shell_command)]
        agent = Agent(client=OpenAIChatCompletionClient(model="gpt-5-mini"), name="counter", tools=tools)
        print((await agent.run("How many primes are below 10,000?")).text)


asyncio.run(main())
