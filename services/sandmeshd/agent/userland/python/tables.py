"""Data frames as records, in the form of a tabular data resource: https://specs.frictionlessdata.io/table-schema/."""

from __future__ import annotations

import json
from typing import Any, Final

KIND: Final = "application/vnd.dataresource+json"
MOST_ROWS: Final = 500


def register(display_formatter: Any, formatter_class: type[Any]) -> None:
    """Register this form for pandas' data frames and series, beside their text."""
    formatter = formatter_class(parent=display_formatter)
    formatter.format_type = KIND
    # Its own asks objects for JSON, which is another form.
    formatter.print_method = "_repr_table_"
    # The modules' names until pandas 2, and from 3 on.
    for module in ("pandas.core.frame", "pandas"):
        formatter.for_type_by_name(module, "DataFrame", records)
    for module in ("pandas.core.series", "pandas"):
        formatter.for_type_by_name(module, "Series", _records_of_series)
    display_formatter.formatters[KIND] = formatter


def _records_of_series(series: Any) -> dict[str, Any] | None:
    return records(series.to_frame())


def records(frame: Any) -> dict[str, Any] | None:
    """Return a frame's first rows with its schema; None where its shape does not fit records."""
    try:
        table: dict[str, Any] = json.loads(frame.head(MOST_ROWS).to_json(orient="table"))
    except Exception:
        return None
    return {**table, "rows": len(frame)}
