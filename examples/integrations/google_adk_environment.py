"""An agent of Google's ADK whose environment is a sandbox of a mesh, by ADK's own class for E2B."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.integrations.e2b import E2BEnvironment
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset

TASK = "How many primes are below 10,000?"


async def main() -> None:
    """Run one agent to its answer."""
    environment = E2BEnvironment()
    agent = LlmAgent(name="counter", model="gemini-2.5-flash", tools=[EnvironmentToolset(environment=environment)])
    try:
        async with InMemoryRunner(agent=agent) as runner:
            events = await runner.run_debug(TASK, quiet=True)
        answers = [part.text for event in events if event.content for part in event.content.parts or [] if part.text]
        print(answers[-1])
    finally:
        await environment.close()


asyncio.run(main())
