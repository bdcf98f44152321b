"""A tool and a reward function for verl, which run a policy's code in sandboxes.

The package's interfaces are `verl.tools.base_tool.BaseTool` and a custom reward function
(https://verl.readthedocs.io/en/latest/preparation/reward_function.html).
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from sandmesh import BaseSandboxAsync, SandmeshError
from sandmesh.integrations.versions import framework
from sandmesh.sandbox.tools.reply_files import ReplyFiles

with framework("verl"):
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

_SECONDS: Final = 30.0
_FENCED: Final = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_SCHEMA: Final = {
    "type": "function",
    "function": {
        "name": "run_code",
        "description": "Run code and return what it printed, displayed and raised. Variables stay between calls.",
        "parameters": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "The code."},
                "language": {"type": "string", "description": "python, js, ts or bash; python by default."},
            },
            "required": ["code"],
        },
    },
}
# A program for each input, as a contest's judge does it; in the sandbox's kernel, so that one call is one answer.
_CASES: Final = """
import json as _json, subprocess as _subprocess, sys as _sys
def _judge(source, inputs, seconds):
    for text in inputs:
        try:
            argv, options = [_sys.executable, "-c", source], {"capture_output": True, "text": True}
            done = _subprocess.run(argv, input=text, timeout=seconds, **options)
            yield {"code": done.returncode, "out": done.stdout}
        except _subprocess.TimeoutExpired:
            yield {"code": None, "out": ""}
"""


class SandmeshTool(BaseTool):
    """The tool `run_code`: each trajectory has its own sandbox, which `release` ends.

    `config` has `timeout`, the seconds of a call (30), and the arguments of `sandmesh.Sandbox` `base_url`,
    `bearer_token`, `sandbox_type`, `network` ("none"), `limits` and `reply_characters`.
    """

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__(config, tool_schema or OpenAIFunctionToolSchema.model_validate(_SCHEMA))
        self._boxes: dict[str, BaseSandboxAsync] = {}
        self._replies: dict[str, ReplyFiles] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        """Create the sandbox of a trajectory; one that it had ends.

        Raises:
            SandmeshError: It could not be created; `fault` says whose fault that is.
        """
        name = instance_id or str(uuid4())
        await self.release(name)
        self._boxes[name] = await _box(self.config).start()
        self._replies[name] = ReplyFiles(self._boxes[name])
        return name, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        """Run a policy's code; the metrics have `fault`: "", "task", "limit" or "infra", which a trainer masks."""
        code, language = parameters.get("code"), str(parameters.get("language") or "python")
        if not isinstance(code, str) or not code:
            return ToolResponse(text="The argument `code` is missing."), 0.0, {"fault": "task"}
        try:
            seconds = float(self.config.get("timeout", _SECONDS))
            result = await self._boxes[instance_id].run_code(code, language, seconds)
        except SandmeshError as error:
            return ToolResponse(text=error.message), 0.0, {"fault": error.fault}
        shown = await self._replies[instance_id].shorten(result)
        return ToolResponse(text=shown.text), 0.0, {"fault": result.fault or ""}

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        """End a trajectory's sandbox; one that is unknown is released already."""
        box = self._boxes.pop(instance_id, None)
        self._replies.pop(instance_id, None)
        if box is not None:
            with suppress(SandmeshError):  # Its lease ends it then.
                await box.close()


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **kwargs: Any
) -> dict[str, Any]:
    """Return the share of tests that the last code block of a solution passes: {"score", "acc", "fault"}.

    `ground_truth` is JSON with lists `inputs` and `outputs`, of which each input is a program's standard input, or code
    that raises unless the solution is right. `kwargs` are what `SandmeshTool` takes as its `config`. Where `fault` is
    "infra" the score says nothing about the solution.
    """
    blocks = _FENCED.findall(solution_str)
    if not blocks:
        return {"score": 0.0, "acc": 0.0, "fault": "task"}
    try:
        async with _box(kwargs) as box:
            score, fault = await _score(box, blocks[-1], ground_truth, float(kwargs.get("timeout", _SECONDS)))
    except SandmeshError as error:
        score, fault = 0.0, error.fault
    return {"score": score, "acc": score, "fault": fault}


def score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **kwargs: Any) -> Any:
    """Call `compute_score` where there is no event loop."""
    return asyncio.run(compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs))


async def _score(box: BaseSandboxAsync, code: str, ground_truth: str, seconds: float) -> tuple[float, str]:
    cases = _cases(ground_truth)
    if cases is None:
        result = await box.run_code(f"{code}\n{ground_truth}", timeout=seconds)
        return float(not result.is_error), result.fault or ""
    inputs, outputs = cases
    judge = f"{_CASES}\nprint(_json.dumps(list(_judge({code!r}, {inputs!r}, {seconds!r}))))"
    result = await box.run_code(judge, timeout=seconds * max(1, len(inputs)) + seconds)
    if result.is_error:
        return 0.0, result.fault or "task"
    ended: list[dict[str, Any]] = json.loads(result.stdout.strip().rpartition("\n")[2])
    pairs = zip(ended, outputs, strict=True)
    passed = [each["code"] == 0 and each["out"].split() == wanted.split() for each, wanted in pairs]
    fault = "" if all(passed) else "limit" if any(each["code"] is None for each in ended) else "task"
    return sum(passed) / max(1, len(passed)), fault


def _cases(ground_truth: str) -> tuple[list[str], list[str]] | None:
    try:
        found: Any = json.loads(ground_truth)
        pairs = list(zip(found["inputs"], found["outputs"], strict=True))
        return [str(stdin) for stdin, _ in pairs], [str(wanted) for _, wanted in pairs]
    except (ValueError, TypeError, KeyError):
        return None


def _box(config: dict[str, Any]) -> BaseSandboxAsync:
    return BaseSandboxAsync(
        base_url=config.get("base_url"),
        bearer_token=config.get("bearer_token"),
        sandbox_type=config.get("sandbox_type", "base"),
        network=config.get("network", "none"),
        limits=config.get("limits"),
        reply_characters=config.get("reply_characters"),
    )
