"""An agent of CrewAI that runs Python in a sandbox of a mesh, by CrewAI's own tool for E2B."""

from crewai import LLM, Agent
from crewai_tools import E2BPythonTool

tool = E2BPythonTool()
agent = Agent(
    role="counter",
    goal="Answer with numbers that were computed.",
    backstory="You compute in Python.",
    llm=LLM(model="openai/gpt-5-mini"),
    tools=[tool],
)
print(agent.kickoff("How many primes are below 10,000?").raw)
