"""The dashboard and the alerts in deploy/ are about metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
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


def _promtool(*words: str) -> None:
    command = ["promtool", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_rules_and_expressions_of_panels(tmp_path: Path) -> None:
    plain = [expression.replace("$__rate_interval", "5m") for expression in _expressions()]
    rules = [{"record": f"panel:{at}", "expr": one} for at, one in enumerate(plain)]
    file = tmp_path / "panels.yml"
    # Rules may be JSON, too, which is YAML.
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    _promtool("check", "rules", str(RULES), str(file))


INFRA = 'fault="infra",instance="a"'
SICK = {
    "SandmeshCreatesFail": {f"sandmesh_create_faults_total{{{INFRA}}}": "0+1x60", "sandmesh_creates_total": "0+10x60"},
    "SandmeshCreatesSlow": {
        'sandmesh_create_seconds_bucket{le="10"}': "0+9x60",
        'sandmesh_create_seconds_bucket{le="30"}': "0+10x60",
        'sandmesh_create_seconds_bucket{le="+Inf"}': "0+10x60",
    },
    "SandmeshQueueGrows": {
        "sandmesh_queue_length": "3x60",
        "sandmesh_sandboxes": "100x60",
        "sandmesh_sandboxes_limit": "100x60",
    },
    "SandmeshPoolEmpty": {
        'sandmesh_pool_wanted{template="base"}': "4x60",
        'sandmesh_pool_ready{template="base"}': "0x60",
    },
    "SandmeshCallsFail": {
        f"sandmesh_call_faults_total{{{INFRA}}}": "0+1x60",
        'sandmesh_calls_started_total{tool="run_shell_command"}': "0+50x60",
    },
    "SandmeshSandboxesLost": {"sandmesh_lost_total": "0+1x60"},
    "SandmeshRpcsFail": {'sandmesh_rpcs_total{method="M",reason="STORE_UNAVAILABLE"}': "0+30x60"},
    "SandmeshSandboxesUnmeasured": {"sandmesh_sandboxes_unmeasured": "2x60"},
}
"""Of each alert, the series of a mesh that it is for, a value a minute."""

WELL = {
    'sandmesh_create_faults_total{fault="infra"}': "0x60",
    "sandmesh_creates_total": "0+10x60",
    'sandmesh_create_seconds_bucket{le="0.1"}': "0+10x60",
    'sandmesh_create_seconds_bucket{le="+Inf"}': "0+10x60",
    "sandmesh_queue_length": "0x60",
    "sandmesh_sandboxes": "100x60",
    "sandmesh_sandboxes_limit": "100x60",
    'sandmesh_pool_wanted{template="base"}': "4x60",
    'sandmesh_pool_ready{template="base"}': "1x60",
    'sandmesh_call_faults_total{fault="infra"}': "0x60",
    'sandmesh_calls_started_total{tool="run_shell_command"}': "0+50x60",
    "sandmesh_lost_total": "0x60",
    'sandmesh_rpcs_total{method="M",reason="OK"}': "0+30x60",
    "sandmesh_sandboxes_unmeasured": "0x60",
}


@pytest.mark.needs("promtool")
def test_each_alert_fires_for_what_it_is_about_and_none_for_a_mesh_that_is_well(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert rules.keys() == SICK.keys()
    cases = [_case(WELL, name, []) for name in rules]
    for name, rule in rules.items():
        labels = {"SandmeshPoolEmpty": {"template": "base"}, "SandmeshRpcsFail": {"method": "M"}}.get(name, {})
        texts = {key: re.sub(r"{{ (\S+) }}", _value, text) for key, text in rule["annotations"].items()}
        cases.append(_case(SICK[name], name, [{"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}]))
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    _promtool("test", "rules", str(file))


def _value(found: re.Match[str]) -> str:
    return {"$labels.template": "base", "$labels.method": "M", "$value": "2"}[found[1]]


def _case(series: dict[str, str], name: str, alerts: list[object]) -> dict[str, object]:
    """Return a test of promtool's: after 40 minutes of these series, an alert fires so."""
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [{"eval_time": "40m", "alertname": name, "exp_alerts": alerts}],
    }
