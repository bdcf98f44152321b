"""What a release depends on: an SBOM in CycloneDX's form, and a table of the licences."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from scripts.release.artefacts import tool

EXTRAS: Final = "all,storage,mcp"
"""The extras whose packages are listed: those with which services run."""


def write_bill(wheel: Path, out: Path, epoch: int) -> list[Path]:
    """Install a wheel with what its services need, and write the SBOM and the licences of that."""
    name = "-".join(wheel.name.split("-")[:2])
    bill, licences = out / f"{name}.cdx.json", out / f"{name}.licences.md"
    with tempfile.TemporaryDirectory(prefix="sandmesh-bill-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        make = [tool("uv"), "venv", "--quiet", "--no-config", str(python.parents[1])]
        subprocess.run(make, check=True)
        install = [tool("uv"), "pip", "install", "--quiet", "--no-config", "--python", str(python)]
        subprocess.run([*install, f"{wheel}[{EXTRAS}]"], check=True)
        command = [
            tool("cyclonedx-py"),
            "environment",
            "--output-reproducible",
            "--of",
            "JSON",
            "-o",
            str(bill),
            str(python),
        ]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, capture_output=True)
    licences.write_text(licence_table(json.loads(bill.read_text())))
    return [bill, licences]


def licence_table(bill: dict[str, Any]) -> str:
    """Return the licences of an SBOM's components as a table in Markdown, the most frequent first."""
    packages: dict[str, list[str]] = defaultdict(list)
    for component in bill["components"]:
        packages[_licence(component)].append(f"{component['name']} {component['version']}")
    rows = [
        f"| {licence} | {len(names)} | {', '.join(sorted(names, key=str.lower))} |"
        for licence, names in sorted(packages.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]
    head = ["# Licences of what sandmesh depends on", "", "| licence | packages | which |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def _licence(component: dict[str, Any]) -> str:
    """Return what a package says of its licence: an expression, else ids, else the first line of a name."""
    found = [
        str(each.get("expression") or each.get("license", {}).get("id") or each.get("license", {}).get("name", ""))
        for each in component.get("licenses", [])
    ]
    lines = [text.strip().splitlines()[0][:60] for text in found if text.strip()]
    return " or ".join(dict.fromkeys(lines)) or "not named in its metadata"
