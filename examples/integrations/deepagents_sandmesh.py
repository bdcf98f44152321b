"""A deep agent of LangChain whose backend is a sandbox of a mesh, without E2B's client."""

from deepagents import create_deep_agent
from langchain.chat_models import init_chat_model

from sandmesh import BaseSandbox
from sandmesh.integrations.deepagents import SandmeshSandbox

model = init_chat_model("openai:gpt-5-mini", use_responses_api=False)
with BaseSandbox() as box:
    backend = SandmeshSandbox(box)
    agent = create_deep_agent(model, backend=backend)
    state = agent.invoke({"messages": [{"role": "user", "content": "How many primes are below 10,000?"}]})
    assert backend.upload_files([("/tmp/numbers.txt", b"1\n2\n")])[0].error is None
    assert backend.execute("wc -l < /tmp/numbers.txt").output.strip() == "2"
    assert backend.download_files(["/tmp/numbers.txt"])[0].content == b"1\n2\n"
print(state["messages"][-1].content)
