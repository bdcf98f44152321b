"""The page about logs and metrics says what is there."""

from __future__ import annotations

from pathlib import Path

from scripts.metrics_table import rows

from sandmeshd.runtime.rpc.request_ids import IDS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text()


def test_the_page_lists_every_metric_and_no_other() -> None:
    listed = [line for line in PAGE.splitlines() if line.startswith("| `sandmesh_")]
    assert listed == rows(), "python scripts/metrics_table.py prints the rows"


def test_the_page_names_the_ids_of_the_logs_context() -> None:
    assert all(f"`{name}`" in PAGE for name in (*IDS, "request_id", "event", "level", "timestamp"))
