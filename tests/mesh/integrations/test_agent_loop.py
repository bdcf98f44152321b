"""Agents of the README and of frameworks: real clients of models against a local server that answers by a script."""

from __future__ import annotations

import pytest

from tests.mesh.integrations.scripted_model import EXAMPLES, scripted_model

AGENTS = ["agent_loop.py", *sorted(f"frameworks/{path.name}" for path in (EXAMPLES / "frameworks").glob("*_agent.py"))]


@pytest.mark.parametrize("program", AGENTS)
async def test_an_agent_answers_with_what_its_sandbox_computed(program: str) -> None:
    async with scripted_model() as model:
        assert await model.run(program) == "There are 1229.\n"
    offered = {tool["function"]["name"] for tool in model.requests[0]["tools"]}
    assert offered >= {"run_ipython_cell", "run_shell_command"}
    reply = model.requests[-1]["messages"][-1]
    assert (reply["role"], reply["content"]) == ("tool", "1229"), "the text alone, without what describes it"


async def test_a_framework_that_inspects_functions_gets_types_and_text() -> None:
    async with scripted_model() as model:
        number, printed = (await model.run("frameworks/plain_functions.py")).split("\n", 1)
    assert "{'anyOf': [{'type': 'number'}, {'type': 'null'}], 'default': None" in number
    assert printed == "The tool failed.\nhello\nexit code: 3\n"
