"""The E2B executor of smolagents, as it is published: its agents' code runs in a sandbox of a mesh."""

from typing import ClassVar

from smolagents import CodeAgent, E2BExecutor, Model, Tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import AgentLogger, LogLevel


class Doubler(Tool):
    """A tool that is sent into the sandbox."""

    name = "doubler"
    description = "Doubles a number."
    inputs: ClassVar = {"number": {"type": "integer", "description": "The number."}}
    output_type = "integer"

    def forward(self, number: int) -> int:
        """Return twice the number."""
        return number * 2


class Script(Model):
    """A model that gives the answers of a script, so that the program needs no key of another service."""

    answers: ClassVar = [
        "<code>\nimport statistics\nmiddle = statistics.mean([1, 2, 6])\nprint(middle)\n</code>",
        "<code>\nfinal_answer(doubler(int(middle)) * factor)\n</code>",
    ]

    def generate(self, messages, **options):
        """Return the next answer."""
        return ChatMessage(role=MessageRole.ASSISTANT, content=self.answers.pop(0))


executor = E2BExecutor([], AgentLogger(level=LogLevel.ERROR), timeout=120)
executor.send_variables({"numbers": [1, 2, 3]})
assert executor("print(sum(numbers))").logs.strip() == "6"
assert executor("sum(numbers) + 1").output in ("7", 7)
try:
    executor("1 / 0")
except Exception as error:
    assert "ZeroDivisionError" in str(error), error
else:
    raise AssertionError("an error was not raised")
executor.cleanup()

with CodeAgent(tools=[Doubler()], model=Script(), executor_type="e2b", verbosity_level=LogLevel.ERROR) as agent:
    assert agent.run("Work.", additional_args={"factor": 7}) == 42
print("every call answered")
