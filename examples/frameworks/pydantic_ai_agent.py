import asyncio

from pydantic_ai import Agent

from sandmesh import BaseSandboxAsync
from sandmesh.integrations.pydantic_ai import as_tools


async def main() -> None:
    async with BaseSandboxAsync() as box:
        agent = Agent("openai-chat:gpt-5-mini", tools=await as_tools(box))
        result = await agent.run("How many primes are below 10,000?")
    print(result.output)


asyncio.run(main())
