"""The calls of SandboxFusion's client, as the package has it, against a mesh: `sandmesh up --sandboxfusion`."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable

from sandbox_fusion import (
    CommandRunStatus,
    GetPromptByIdRequest,
    GetPromptsRequest,
    RunCodeRequest,
    RunJupyterRequest,
    RunStatus,
    SubmitRequest,
    SummaryMapping,
    TestConfig,
    get_prompt_by_id,
    get_prompt_by_id_async,
    get_prompts,
    get_prompts_async,
    run_code,
    run_code_async,
    run_concurrent,
    run_jupyter,
    run_jupyter_async,
    set_dataset_endpoint,
    set_endpoint,
    set_sandbox_endpoint,
    submit,
    submit_async,
    submit_safe,
    submit_safe_async,
    summary_run_code_result,
)

PROGRAMS = {
    "python": "print(int(input()) * 2)",
    "bash": "read x; echo $((x * 2))",
    "nodejs": "console.log(2 * Number(require('fs').readFileSync(0, 'utf8')))",
    "typescript": "const x: number = 2; console.log(x * Number(require('fs').readFileSync(0, 'utf8')))",
    "cpp": "#include <iostream>\nint main() { int x; std::cin >> x; std::cout << 2 * x << std::endl; }",
    "perl": 'print 2 * <STDIN>, "\\n"',
}


def programs() -> None:
    """Run programs in several languages."""
    for language in os.environ["LANGUAGES"].split():
        request = RunCodeRequest(
            code=PROGRAMS[language], language=language, stdin="21", run_timeout=60, compile_timeout=60
        )
        done = run_code(request, max_attempts=1)
        assert (done.status, done.run_result.stdout.strip()) == (RunStatus.Success, "42"), (language, done)
    file = base64.b64encode(b"inside").decode()
    code = "open('out', 'w').write(open('deep/in').read() * 2)"
    done = run_code(RunCodeRequest(code=code, language="python", files={"deep/in": file}, fetch_files=["out", "no"]))
    assert {name: base64.b64decode(data) for name, data in done.files.items()} == {"out": b"insideinside"}


def failures() -> None:
    """Run programs that fail, in each way that clients tell apart."""
    mapping = SummaryMapping(CompileFailed="compile", RunFailed="run", RunTimeout="time")
    for language, code, expected in (
        ("python", "raise SystemExit(3)", "run"),
        ("python", "while True: pass", "time"),
        ("cpp", "int main() { return missing; }", "compile"),
        ("python", "print(1)", RunStatus.Success),
    ):
        if language in os.environ["LANGUAGES"].split():
            done = run_code(RunCodeRequest(code=code, language=language, run_timeout=2, compile_timeout=60))
            assert summary_run_code_result(done, mapping) == expected, done
    try:
        run_code(RunCodeRequest(code="1", language="verilog"), max_attempts=1)
    except Exception as error:
        assert "501" in str(error)
        assert "verilog" in str(error)
    else:
        raise AssertionError("verilog ran")


def notebooks() -> None:
    """Run cells that share a kernel."""
    cells = ["a = 41", "a + 1", "print(a)", "import sys; sys.stderr.write('e')", "1 / 0", "a"]
    done = run_jupyter(RunJupyterRequest(cells=cells), max_attempts=1)
    assert done.status == RunStatus.Success
    assert done.driver.status == CommandRunStatus.Finished
    assert [cell.stdout for cell in done.cells] == ["", "", "41\n", "", "", ""]
    assert done.cells[1].display[0]["text/plain"] == "42"
    assert done.cells[3].stderr == "e"
    assert done.cells[4].error[0]["ename"] == "ZeroDivisionError"
    assert done.cells[5].display[0]["text/plain"] == "41"
    late = run_jupyter(RunJupyterRequest(cells=["import time; time.sleep(60)"], total_timeout=2), max_attempts=1)
    assert (late.status, late.driver.status) == (RunStatus.Failed, CommandRunStatus.TimeLimitExceeded)


def refused(call: Callable[[], object]) -> None:
    """Call what needs a dataset, which the error names."""
    try:
        call()
    except Exception as error:
        assert "501" in str(error)
        assert "no datasets" in str(error)
    else:
        raise AssertionError("there is a dataset")


def datasets() -> None:
    """Ask for prompts, and submit answers, by each function that there is for it."""
    set_sandbox_endpoint(os.environ["ENDPOINT"])
    set_dataset_endpoint(os.environ["ENDPOINT"])
    one = {"dataset": "trial", "config": TestConfig()}
    prompts, prompt = GetPromptsRequest(**one), GetPromptByIdRequest(**one, id=1)
    answer = SubmitRequest(**one, id=1, completion="print(1)")
    for call in (
        lambda: get_prompts(prompts),
        lambda: get_prompt_by_id(prompt),
        lambda: submit(answer, max_attempts=1),
        lambda: asyncio.run(get_prompts_async(prompts)),
        lambda: asyncio.run(get_prompt_by_id_async(prompt)),
        lambda: asyncio.run(submit_async(answer, max_attempts=1)),
    ):
        refused(call)
    # These two have a rejected result in the place of any error.
    assert not submit_safe(answer, max_attempts=1).accepted
    assert not asyncio.run(submit_safe_async(answer, max_attempts=1)).accepted


async def both() -> None:
    """Use the client's coroutines."""
    ran = await run_code_async(RunCodeRequest(code="print(1)", language="python"), max_attempts=1)
    assert ran.run_result.stdout == "1\n"
    cells = await run_jupyter_async(RunJupyterRequest(cells=["1"]), max_attempts=1)
    assert cells.cells[0].display[0]["text/plain"] == "1"


set_endpoint(os.environ["ENDPOINT"])
programs()
failures()
notebooks()
datasets()
asyncio.run(both())
requests = [[RunCodeRequest(code=f"print({number})", language="python")] for number in range(8)]
assert [one.run_result.stdout for one in run_concurrent(run_code, requests, concurrency=4)] == [
    f"{n}\n" for n in range(8)
]
print("every call answered")
