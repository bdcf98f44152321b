"""What E2B's start pages show of its code interpreter, by its own client."""

import os

from e2b_code_interpreter import Sandbox
from e2b_code_interpreter.charts import ChartType

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('growth')\nplt.show()"

with Sandbox.create(timeout=120) as sandbox:
    execution = sandbox.run_code("print('hello')\nx = 1\nx + 1")
    assert (execution.text, execution.logs.stdout) == ("2", ["hello\n"])
    assert sandbox.run_code("x").text == "1"
    plot = sandbox.run_code(PLOT).results[0]
    assert {"text", "png", "chart"} == set(plot.formats())
    assert plot.chart is not None
    assert (plot.chart.type, plot.chart.title) == (ChartType.LINE, "growth")
    table = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})").results[0]
    assert table.html
    assert table.data == {"a": [1, 2]}
    error = sandbox.run_code("1 / 0").error
    assert error is not None
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert sandbox.run_code("import os; os.environ['MODE']", envs={"MODE": "trial"}).text == "trial"
    assert sandbox.run_code("os.environ.get('MODE', 'none')").text == "none"
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert context.id in {one.id for one in sandbox.list_code_contexts()}
    sandbox.remove_code_context(context)
    assert context.id not in {one.id for one in sandbox.list_code_contexts()}
    assert sandbox.run_code("echo $GREETING", language="bash", envs={"GREETING": "hello"}).logs.stdout == ["hello\n"]
    if "WITHOUT_NODE" not in os.environ:
        assert sandbox.run_code("const a = await Promise.resolve(41); a + 1", language="js").text == "42"
        assert sandbox.run_code("(a: number) => a", language="ts").error is None
        script = sandbox.create_code_context(language="js", cwd="/tmp")
        assert sandbox.run_code("process.cwd()", context=script).text == "/tmp"
    lines: list[str] = []
    sandbox.run_code("for number in range(3): print(number)", on_stdout=lambda message: lines.append(message.line))
    assert "".join(lines) == "0\n1\n2\n"
print("every call answered")
