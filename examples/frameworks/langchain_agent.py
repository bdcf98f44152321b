from langchain.agents import create_agent

from sandmesh import BaseSandbox
from sandmesh.integrations.langchain import as_tools

with BaseSandbox() as box:
    agent = create_agent("openai:gpt-5-mini", tools=as_tools(box))
    state = agent.invoke({"messages": [{"role": "user", "content": "How many primes are below 10,000?"}]})
print(state["messages"][-1].content)
