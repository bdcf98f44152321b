"""Figures of matplotlib as what they show, by the library e2b-charts of the template: titles, axes and points."""

from __future__ import annotations

import json
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any, Final

KIND: Final = "e2b/chart"


def register(display_formatter: Any, formatter_class: type[Any]) -> None:
    """Register this form for figures, beside their image."""
    formatter = formatter_class(parent=display_formatter)
    formatter.format_type = KIND
    # Its own asks objects for JSON, which is another form.
    formatter.print_method = "_repr_chart_"
    # Its base class: matplotlib-inline removes every form of Figure itself.
    formatter.for_type_by_name("matplotlib.figure", "FigureBase", _chart)
    display_formatter.formatters[KIND] = formatter


def _chart(figure: Any) -> dict[str, Any] | None:
    try:
        # At the first figure: it takes pydantic along.
        library: Any = import_module("e2b_charts")
        # What it warns of is nothing that the user's code did.
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            shown = library.chart_figure_to_dict(figure)
        chart: dict[str, Any] = json.loads(json.dumps(shown, allow_nan=False, default=str))
    except Exception:
        # No chart, numbers that JSON lacks, or a template without the library: the image is all.
        return None
    return chart or None
