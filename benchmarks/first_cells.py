"""What a model receives for ten usual first cells: `python -m benchmarks.first_cells` prints a table in Markdown.

The cells run one after another in one sandbox of the template `data`, by the tools that a program gives a model.
"""

from __future__ import annotations

from typing import Any

from sandmesh import FilesystemSandbox

CELLS = {
    "install and import": "%pip install -q tomli_w\nimport tomli_w; tomli_w.dumps({'a': 1})",
    "matplotlib": "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.title('squares'); plt.show()",
    "seaborn": "import seaborn as sns, pandas as pd\nsns.heatmap(pd.DataFrame([[1, 2]]), annot=True); plt.show()",
    "plotly": "import plotly.express as px\npx.bar(x=['a', 'b'], y=[1, 2]).show()",
    "altair": "import altair as alt\nalt.Chart(pd.DataFrame({'x': [1], 'y': [3]})).mark_bar().encode(x='x', y='y')",
    "bokeh": (
        "from bokeh.io import output_notebook; from bokeh.plotting import figure, show\noutput_notebook()\n"
        "f = figure(); f.line([1, 2], [3, 4]); show(f)"
    ),
    "a progress bar": "from tqdm.auto import tqdm; import time\nfor _ in tqdm(range(50)): time.sleep(0.01)",
    "a server in the background": (
        "import subprocess, sys, time, requests\n"
        "server = subprocess.Popen([sys.executable, '-m', 'http.server', '8123'])\ntime.sleep(2)\n"
        "requests.get('http://127.0.0.1:8123', proxies={'http': ''}).status_code"
    ),
    "a styled data frame": "pd.DataFrame({'a': range(100)}).style.background_gradient()",
    "a long loop": "for n in range(200_000): print(n)",
}


def main() -> None:
    """Run the cells and print what each sends."""
    print("| cell | text, in bytes | images, in bytes of base64 | error |\n| --- | --- | --- | --- |")
    with FilesystemSandbox(sandbox_type="data", timeout=300, network=["public", "packages"]) as box:
        tools = box.as_tools("anthropic")
        for name, code in CELLS.items():
            call = {"type": "tool_use", "id": "c", "name": "run_ipython_cell", "input": {"code": code}}
            reply: Any = tools.reply(call)
            parts: list[Any] = reply["content"]
            images = sum(len(part["source"]["data"]) for part in parts if part["type"] == "image")
            text = sum(len(part["text"].encode()) for part in parts if part["type"] == "text")
            print(f"| {name} | {text:,} | {images:,} | {'yes' if reply.get('is_error') else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
