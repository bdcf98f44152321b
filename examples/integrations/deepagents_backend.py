"""A deep agent of LangChain whose backend is a sandbox of a mesh, by LangChain's own package for E2B."""

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain.chat_models import init_chat_model
from langchain_e2b import E2BSandbox

model = init_chat_model("openai:gpt-5-mini", use_responses_api=False)
with Sandbox.create() as sandbox:
    backend = E2BSandbox(sandbox=sandbox)
    agent = create_deep_agent(model, backend=backend)
    state = agent.invoke({"messages": [{"role": "user", "content": "How many primes are below 10,000?"}]})
    assert backend.upload_files([("/tmp/numbers.txt", b"1\n2\n")])[0].error is None
    assert backend.execute("wc -l < /tmp/numbers.txt").output.strip() == "2"
    assert backend.download_files(["/tmp/numbers.txt"])[0].content == b"1\n2\n"
    assert backend.grep("2", "/tmp").matches[0]["path"] == "/tmp/numbers.txt"
print(state["messages"][-1].content)
