"""An agent of LlamaIndex that runs Python in a sandbox of a mesh, by E2B's client."""

import asyncio
import os

from e2b_code_interpreter import AsyncSandbox
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


async def main() -> None:
    """Run one agent to its answer."""
    async with await AsyncSandbox.create() as box:

        async def run_python(code: str) -> str:
            """Run Python code and return what it prints, or its error."""
            run = await box.run_code(code)
            return run.error.traceback if run.error else "".join(run.logs.stdout)

        model = OpenAILike(
            model="gpt-5-mini",
            api_base=os.environ["OPENAI_BASE_URL"],
            api_key=os.environ["OPENAI_API_KEY"],
            is_chat_model=True,
            is_function_calling_model=True,
        )
        agent = FunctionAgent(tools=[run_python], llm=model, streaming=False)
        print(await agent.run("How many primes are below 10,000?"))


asyncio.run(main())
