"""How libraries that expect a terminal, a window or a script find a kernel instead."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from sandmeshd.agent.userland.python import event_loop


def _show_figures(backends: Any) -> None:
    """Show figures also with matplotlib's backends that only write files, which `matplotlib.use("Agg")` chooses."""
    manager, backend = backends.FigureManagerBase, backends._Backend  # noqa: SLF001 - older backends inherit from it
    show_window, show_windows, show_all = manager.show, manager.pyplot_show.__func__, backend.show.__func__

    def show(self: Any) -> None:
        if _is_inline():
            # It shows all figures where the cell ends.
            show_window(self)
        else:
            _display_figure(self.canvas.figure)

    def pyplot_show(cls: Any, *, block: bool | None = None) -> None:
        if cls.show is show:
            _display_all()
        else:
            show_windows(cls, block=block)

    def backend_show(cls: Any, *, block: bool | None = None) -> None:
        if cls.mainloop is None:
            _display_all()
        else:
            show_all(cls, block=block)

    manager.show, manager.pyplot_show, backend.show = show, classmethod(pyplot_show), classmethod(backend_show)


def _display_all() -> None:
    pyplot: Any = import_module("matplotlib.pyplot")
    for number in pyplot.get_fignums():
        _display_figure(pyplot.figure(number))
    pyplot.close("all")


def _is_inline() -> bool:
    matplotlib: Any = import_module("matplotlib")
    return "inline" in str(matplotlib.get_backend())


def _display_figure(figure: Any) -> None:
    ipython: Any = import_module("IPython")
    pylab: Any = import_module("IPython.core.pylabtools")
    shell: Any = ipython.get_ipython()
    if figure.__class__ not in shell.display_formatter.formatters["image/png"]:
        pylab.select_figure_formats(shell, {"png"}, bbox_inches="tight")
    ipython.display.display(figure)


def _find_more_fonts(fonts: Any) -> None:
    """Draw what the chosen fonts lack, such as Chinese or emoji, with fonts of the environment or the machine."""
    manager = fonts.FontManager
    find = manager._find_fonts_by_props  # noqa: SLF001 - it has no list of last resorts
    more: list[Any] = []

    def find_all(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        found = find(self, *args, **kwargs)
        if not more:
            _add_fonts(self)
            known = {font.name: font for font in reversed(self.ttflist)}
            names = [name for name in _MORE_FONTS if name in known and os.path.exists(known[name].fname)]  # noqa: PTH110
            more.extend([*(find(self, fonts.FontProperties(family=[name]))[0] for name in names), None])
        return [*found, *(font for font in more if font is not None and font not in found)]

    manager._find_fonts_by_props = find_all  # noqa: SLF001
    _say_once(fonts._log)  # noqa: SLF001 - the logger's name is not part of its interface either


def _add_fonts(manager: Any) -> None:
    """Add the environment's fonts where matplotlib's list of fonts was made by a version that a user installed."""
    known = {str(font.fname) for font in manager.ttflist}
    for package in _FONT_PACKAGES:
        found = find_spec(package)
        for folder in (found.submodule_search_locations or ()) if found else ():
            for name in sorted(os.listdir(folder)):  # noqa: PTH208 - pathlib takes as long to import as all of this
                if name.endswith((".ttf", ".ttc")) and f"{folder}/{name}" not in known:
                    manager.addfont(f"{folder}/{name}")


def _say_once(logger: Any) -> None:
    """Pass each message on once: each text of a figure would repeat that its font is missing."""
    said: set[str] = set()

    def is_new(record: Any) -> bool:
        message = record.getMessage()
        if message in said:
            return False
        if len(said) < _MOST_SAID:
            said.add(message)
        return True

    logger.addFilter(is_new)


def _show_images(shows: Any) -> None:
    """Show pictures of Pillow in the cell: programs that open windows may be there, but windows are not visible."""
    viewer = next((found for found in shows._viewers if type(found).__name__ == "IPythonViewer"), None)  # noqa: SLF001
    if viewer is not None:
        shows._viewers[:] = [viewer]  # noqa: SLF001 - it has no function for this


def _show_saved_images(image: Any) -> None:
    """Show what Pillow saves under a name, in templates that say so, once it is saved."""
    if os.environ.get("SANDMESH_SHOW_SAVED") != "images":
        return
    save = image.Image.save

    @functools.wraps(save)
    def save_and_show(self: Any, fp: Any, *args: Any, **kwargs: Any) -> None:
        save(self, fp, *args, **kwargs)
        if isinstance(fp, str):
            import_module("IPython.display").display(self)

    image.Image.save = save_and_show


def _draw_bars_as_text(notebook: Any) -> None:
    """Draw the progress bars that are made for notebooks as tqdm's own for terminals: their widgets would not move."""
    plain: Any = import_module("tqdm.std").tqdm

    def make(bar: Any, *args: Any, display: bool = True, **kwargs: Any) -> None:
        plain.__init__(bar, *args, **kwargs)

    def make_of_range(*args: Any, **kwargs: Any) -> Any:
        return text_bar(range(*args), **kwargs)

    text_bar: Any = type("tqdm_notebook", (plain,), {"__init__": make})
    notebook.tqdm_notebook = notebook.tqdm = text_bar
    notebook.tnrange = notebook.trange = make_of_range


def _say_what_widgets_are(widgets: Any) -> None:
    """Print a note with the first widget that is shown: it is static, since no front end is connected."""
    bundle = widgets.Widget._repr_mimebundle_
    said: list[bool] = []

    def show(self: Any, **kwargs: Any) -> Any:
        if not said:
            said.append(True)
            sys.stdout.write("widgets are shown as text here: they do not move, and are set by code\n")
        return bundle(self, **kwargs)

    widgets.Widget._repr_mimebundle_ = show


def _keep_what_is_shown(widgets: Any) -> None:
    """Keep what a cell showed where a widget for output, which the cell's own output stands in for, is cleared."""

    def clear(*_: Any, **__: Any) -> None:
        """Leave it."""

    widgets.clear_output = clear


def _show_without_nbformat(renderers: Any) -> None:
    """Stand in for nbformat, which plotly requires to show figures and of which it only reads the version."""
    if not renderers.nbformat:
        renderers.nbformat = SimpleNamespace(__version__="5.0.0")


def _run_apart(*names: str) -> Callable[[Any], None]:
    def adapt(module: Any) -> None:
        for name in names:
            setattr(module, name, event_loop.apart(getattr(module, name)))

    return adapt


def _run_uvloop(module: Any) -> None:
    module.run = event_loop.apart(module.run)
    for name in ("run_forever", "run_until_complete"):
        setattr(module.Loop, name, event_loop.apart(getattr(module.Loop, name)))


_MOST_SAID: Final = 1000
_FONT_PACKAGES: Final = ("manimgx_fonts", "noto_cjk_sans_otc")
"""The environment's packages of fonts. They are nothing but fonts, and are not imported."""
_SCRIPTS: Final = (
    *("Arabic", "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi", "Hebrew"),
    *("Kannada", "Khmer", "Lao", "Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai"),
)
_MORE_FONTS: Final = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    *(f"Noto Sans {script}" for script in _SCRIPTS),
    # matplotlib brings it, with all mathematical letters.
    "STIXGeneral",
    "Noto Sans Symbols",
    "Noto Emoji",
    "Symbola",
)
"""Fonts that have what matplotlib's own lacks; coloured emoji are none that it can draw."""

ADAPTATIONS: Final[dict[str, Callable[[ModuleType], None]]] = {
    "matplotlib.backend_bases": _show_figures,
    "matplotlib.font_manager": _find_more_fonts,
    "PIL.Image": _show_saved_images,
    "PIL.ImageShow": _show_images,
    "tqdm.notebook": _draw_bars_as_text,
    "ipywidgets.widgets.widget": _say_what_widgets_are,
    "ipywidgets.widgets.interaction": _keep_what_is_shown,
    "ipywidgets.widgets.widget_output": _keep_what_is_shown,
    "plotly.io._renderers": _show_without_nbformat,
    "anyio._core._eventloop": _run_apart("run"),
    "uvloop": _run_uvloop,
}
"""By the module's name, what is done once it was imported."""
