"""Figures, pictures and asyncio in the SDK's results: what a cell of a usual model gives."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmeshd.mesh import Mesh


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
SHOWING = {
    "inline": PLOT,
    "use": f"import matplotlib\nmatplotlib.use('Agg')\n{PLOT}",
    "use after pyplot": "import matplotlib, matplotlib.pyplot\nmatplotlib.use('Agg')\n" + PLOT,
    "switch": "import matplotlib.pyplot as plt\nplt.switch_backend('agg')\n" + PLOT,
    "file": "import matplotlib\nmatplotlib.use('svg')\n" + PLOT,
    "figure": "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.subplots()[0].show()",
    "widget": f"%matplotlib widget\n{PLOT}",
    "notebook": f"%matplotlib notebook\n{PLOT}",
    "qt": f"%matplotlib qt\n{PLOT}",
    "pillow": "from PIL import Image\nImage.new('RGB', (9, 9)).show()",
}


async def test_a_figure_is_shown_once_whatever_back_end_was_asked_for(box: BaseSandboxAsync) -> None:
    for name, code in SHOWING.items():
        kernel = await box.kernels.create()
        result = await kernel.run(code)
        assert not result.is_error, (name, result.text)
        assert len(result.images) == 1, (name, result.text)
        assert len(result.text.splitlines()) == (1 if name in {"widget", "notebook", "qt"} else 0), (name, result.text)
        await kernel.delete()


async def test_an_animation_of_clear_output_leaves_its_last_picture_and_text(box: BaseSandboxAsync) -> None:
    code = (
        "from IPython.display import clear_output\nfor i in range(4):\n    clear_output(wait=True); print('step', i)\n"
    )
    result = await box.run_ipython_cell(code)
    assert (result.stdout, result.stdout_bytes) == ("step 3\n", b"step 3\n")
    drawn = "import matplotlib.pyplot as plt\n" + code + "    plt.plot([i, 1]); plt.show()"
    result = await box.run_ipython_cell(drawn)
    assert (result.stdout, len(result.images)) == ("step 3\n", 1)


async def test_a_display_that_is_updated_shows_its_last_state_also_in_a_later_cell(box: BaseSandboxAsync) -> None:
    first = await box.run_ipython_cell("h = display('one', display_id=True)\nfor n in 'abc': h.update(n)")
    assert first.text == "'c'"
    assert (await box.run_ipython_cell("h.update('later')")).text == "'later'"


async def test_a_display_whose_kernel_died_is_an_error_of_the_cell_alone(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("h = display('one', display_id=True)")
    assert (await box.run_ipython_cell("import os; os.kill(os.getpid(), 9)")).fault == "task"
    lost = await box.run_ipython_cell("h.update('two')")
    assert "NameError" in lost.stderr
    code = "from IPython.display import update_display\nupdate_display('three', display_id='h')"
    assert (await box.run_ipython_cell(code)).text == "'three'"


async def test_what_is_wrong_is_said_once(box: BaseSandboxAsync) -> None:
    for code in ("1 +", "def f(:", "  a\n b", "raise ValueError('only here')", "{}['key']", "raise Exception('a\\0b')"):
        result = await box.run_ipython_cell(code)
        last = result.stderr.rstrip().splitlines()[-1]
        assert result.stderr.count(last) == 1, result.stderr


async def test_html_of_megabytes_is_a_short_text_and_a_whole_form(box: BaseSandboxAsync) -> None:
    result = await box.run_ipython_cell("display({'text/html': '<script>' + 'x' * 4_800_000 + '</script>'}, raw=True)")
    assert len(result.text) < 200
    assert [len(form) for form in result.forms("text/html")] == [4_800_017]


async def test_a_font_that_is_missing_is_said_once(mesh: Mesh) -> None:
    code = "import matplotlib.pyplot as plt\nplt.rcParams['font.family'] = 'Nope'\nplt.plot([1, 2]); plt.title('a')"
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        shown = await box.run_ipython_cell(code)
    assert shown.text.count("'Nope' not found") == 1, shown.text
    assert shown.images


TITLES = {
    "emoji": "🚀 launch 😀👍🏽🇩🇪👨\u200d👩\u200d👧 ✅ ❌ ⚠️ 📈",
    "mathematics": "\N{MATHEMATICAL SCRIPT CAPITAL X} ∈ \N{DOUBLE-STRUCK CAPITAL R} ∮",
    "signs": "✓ ✗ → ★ ☃ ♥ ⚡ ☎",
    "Chinese, Japanese, Korean": "销售额 銷售額 売上 매출",
    "scripts": "हिन्दी தமிழ் বাংলা తెలుగు ไทย العربية עברית ქართული Հայ አማርኛ ខ្មែរ සිංහල",
}


async def test_titles_in_all_scripts_and_with_emoji_have_their_glyphs(box: BaseSandboxAsync) -> None:
    for name, title in TITLES.items():
        result = await box.run_ipython_cell(f"import matplotlib.pyplot as plt\nplt.title({title!r})\nplt.show()")
        assert (len(result.images), result.stderr) == (1, ""), (name, result.stderr)
    script = (
        "import matplotlib.pyplot as plt\n"
        "plt.rcParams['font.family'] = ['sans-serif', 'Noto Sans CJK SC', 'Noto Emoji', 'STIXGeneral']\n"
        "plt.title('🚀 销售额 \N{MATHEMATICAL SCRIPT CAPITAL X}'); plt.savefig('out.png')\n"
    )
    result = await box.run_shell_command(f"cat > plot.py <<'END'\n{script}END\npython plot.py && ls out.png")
    assert (result.stdout, result.stderr) == ("out.png\n", ""), result.text
