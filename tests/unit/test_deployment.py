"""deploy/compose.yaml and docs/deploy.md: what each service is limited to, and what has to be installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_limits_of_memory_and_processes_and_its_log_is_rotated(service: str) -> None:
    found = SERVICES[service]
    assert found["mem_limit"] == "${MESH_MEMORY:-1g}"
    assert found["pids_limit"] == 512
    assert found["logging"]["options"].keys() == {"max-size", "max-file"}


def test_the_page_names_the_extras_of_the_commands_that_it_runs() -> None:
    before = PAGE.partition("sandmesh certificate")[0]
    assert re.search(r"pip install \"sandmesh\[docker,tls\]\"", before)
