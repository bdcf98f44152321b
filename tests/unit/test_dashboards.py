"""The dashboard and the alerts in deploy/ are about metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from scripts.metrics_table import rows

from sandmesh.errors import Fault

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD, RULES = DEPLOY / "grafana" / "sandmesh.json", DEPLOY / "prometheus" / "sandmesh.yml"


def _metrics() -> dict[str, set[str]]:
    """Return the labels of each series that a mesh shows."""
    found: dict[str, set[str]] = {}
    for row in rows():
        _, name, kind, labels, _, _ = (part.strip() for part in row.split("|"))
        plain = name.strip("`")
        for ending in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            found[f"{plain}{ending}"] = {*re.findall(r"`(\w+)`", labels), *(["le"] if ending == "_bucket" else [])}
    return found


def _expressions() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_an_expression_is_about_metrics_and_labels_that_exist(expression: str) -> None:
    known = _metrics()
    names = re.findall(r"\bsandmesh_\w+", expression)
    assert names
    assert set(names) <= set(known)
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        labels |= {label.strip() for label in grouped.split(",")}
    assert labels <= {label for name in names for label in known[name]}
    faults = set(re.findall(r"fault=\"(\w+)\"", expression))
    assert faults <= set(get_args(Fault))


def test_legends_and_texts_name_labels_that_their_series_have() -> None:
    known = _metrics()
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [(target["expr"], target["legendFormat"]) for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    texts = [(rule["expr"], " ".join(rule["annotations"].values())) for rule in rules]
    for expression, text in [*panels, *texts]:
        labels = {label for name in re.findall(r"\bsandmesh_\w+", expression) for label in known[name]}
        assert set(re.findall(r"{{ ?(?:\$labels\.)?(\w+) ?}}", text)) <= labels, text
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_prometheus_takes_the_rules_and_expressions_of_panels(tmp_path: Path) -> None:
    plain = [expression.replace("$__rate_interval", "5m") for expression in _expressions()]
    assert all(one.count("(") == one.count(")") for one in plain)
    rules = [{"record": f"panel:{at}", "expr": one} for at, one in enumerate(plain)]
    file = tmp_path / "panels.yml"
    # Rules may be JSON, too, which is YAML.
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool = shutil.which("promtool")
    if promtool is not None:  # of Debian's package prometheus, which is large: people and releases have it
        done = subprocess.run(
            [promtool, "check", "rules", str(RULES), str(file)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
