"""Libraries for notebooks, installed as a user does: what a reader without a browser gets."""

from __future__ import annotations

import pytest

from sandmesh import BaseSandboxAsync
from sandmeshd.mesh import Mesh

NOTE = "widgets are shown as text here: they do not move, and are set by code\n"
BAR = "from pyecharts.charts import Bar\nBar().add_xaxis(['a']).add_yaxis('s', [1]).render_notebook()"
LINE = (
    "from bokeh.plotting import figure, show\nfrom bokeh.io import output_notebook\n"
    "output_notebook(); p = figure(); p.line([1, 2], [3, 4]); show(p)"
)
CHART = "import altair, pandas as pd\naltair.Chart(pd.DataFrame({'a': range(4000)})).mark_bar().encode(x='a')"
FIGURE = "import plotly.graph_objects as go\ngo.Figure(go.Scatter(x=list(range(20_000))))"


@pytest.mark.timeout(300)
async def test_widgets_maps_and_charts_are_short_plain_text(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], network=["packages"], timeout=300) as box:
        installed = await box.run_shell_command("pip install -q ipywidgets folium pyecharts bokeh altair plotly 2>&1")
        assert installed.exit_code == 0, installed.text
        first = await box.run_ipython_cell(
            "import ipywidgets as w\nprint('before')\ndisplay(w.IntSlider(value=3))\nw.Text('x')"
        )
        assert first.text == f"before\n{NOTE}IntSlider(value=3)\nText(value='x')"
        again = await box.run_ipython_cell("print('kept')\nout = w.interact(lambda x: print('got', x), x=3)")
        assert again.text.startswith("kept\ngot 3\n")
        assert again.text.splitlines()[2].startswith("interactive(children=(IntSlider(value=3")
        assert NOTE not in again.text
        cleared = await box.run_ipython_cell(
            "out = w.Output()\nprint('one')\nout.clear_output()\nwith out: print('two')"
        )
        assert cleared.text == "one\ntwo\n"
        place = await box.run_ipython_cell("import folium\nfolium.Map(location=[1, 2])")
        assert place.text.startswith("<folium.folium.Map at 0x"), place.text
        for code in (BAR, LINE, CHART, FIGURE, FIGURE + ".show()"):
            shown = await box.run_ipython_cell(code)
            assert not shown.is_error, shown.text
            assert 0 < len(shown.text) < 400, shown.text
            assert "<script" not in shown.text
        assert "Plotly" in str(shown.forms("text/html")[0])
