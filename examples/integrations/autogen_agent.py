"""An agent of AutoGen that runs Python in a sandbox of a mesh, by E2B's client."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from e2b_code_interpreter import AsyncSandbox


async def main() -> None:
    """Run one agent to its answer."""
    async with await AsyncSandbox.create() as box:

        async def run_python(code: str) -> str:
            """Run Python code and return what it prints, or its error."""
            run = await box.run_code(code)
            return run.error.traceback if run.error else "".join(run.logs.stdout)

        model = OpenAIChatCompletionClient(model="gpt-5-mini")
        agent = AssistantAgent("counter", model, tools=[run_python], reflect_on_tool_use=True)
        result = await agent.run(task="How many primes are below 10,000?")
        print(result.messages[-1].content)
        await model.close()


asyncio.run(main())
