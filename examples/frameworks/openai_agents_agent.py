import asyncio

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled

from sandmesh import BaseSandboxAsync
from sandmesh.integrations.openai_agents import as_tools

set_tracing_disabled(True)
set_default_openai_api("chat_completions")


async def main() -> None:
    async with BaseSandboxAsync() as box:
        agent = Agent(name="counter", model="gpt-5-mini", tools=await as_tools(box))
        result = await Runner.run(agent, "How many primes are below 10,000?")
    print(result.final_output)


asyncio.run(main())
