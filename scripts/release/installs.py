"""Installations of a wheel: each extra in a fresh environment on each Python."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.release.artefacts import tool
from scripts.release.pythons import is_for_everyone

_DRIVER: Final = "from sandmeshd.drivers.api.registry import find_driver; find_driver('{}')"
_FIRST_RESULT: Final = """from sandmesh import BaseSandbox
with BaseSandbox() as box:
    assert box.run_ipython_cell("6 * 7").text.strip() == "42"
"""
_SERVER: Final = "import sandmeshd.gateway.app, sandmeshd.cli.user_app"
# What shows that an extra has what it promises; in the environment of the extra alone.
USES: Final[Mapping[str, str]] = {
    "": "import sandmesh; sandmesh.BaseSandbox; sandmesh.MeshAsync",
    "server": _SERVER,
    "storage": "import sandmeshd.storage, opendal",
    "local": _FIRST_RESULT,
    "mcp": "import sandmeshd.facades.mcp.server",
    "docker": _DRIVER.format("docker"),
    "kubernetes": _DRIVER.format("kubernetes"),
    "fc": _DRIVER.format("fc"),
    "agentrun": _DRIVER.format("agentrun"),
    "boxlite": _DRIVER.format("boxlite"),
    "otel": "import opentelemetry.exporter.otlp.proto.grpc.trace_exporter, sandmeshd.cli.config.trace_sampler",
    "ssh": "import sandmeshd.cli.ssh.commands, sandmeshd.cli.ssh.server",
    "claude-worker": "import sandmeshd.cli.hosted_agents.commands, sandmeshd.cli.hosted_agents.claude",
    "tls": "import trustme, sandmeshd.runtime.certificates",
    "agentscope": "import sandmeshd.cli.agentscope.scripts, sandmesh.compat.agentscope_runtime",
    "all": "; ".join(
        _DRIVER.format(name) for name in ("bubblewrap", "docker", "kubernetes", "fc", "agentrun", "boxlite")
    ),
    "agentbay": "import httpx2, sandmesh.compat.agentscope_runtime",
    "gymnasium": "import sandmesh.integrations.gym",
    "inspect": "import sandmesh.integrations.inspect_sandbox",
    "swe-rex": "import sandmesh.integrations.swe_rex",
    "mini-swe-agent": "import sandmesh.integrations.mini_swe_agent",
    "openenv": "import sandmesh.integrations.openenv",
    "harbor": "import sandmesh.integrations.harbor",
    "agentscope-workspace": "import sandmesh.integrations.agentscope",
    "langchain": "import sandmesh.integrations.langchain",
    "deepagents": "import sandmesh.integrations.deepagents",
    "pydantic-ai": "import sandmesh.integrations.pydantic_ai",
    "openai-agents": "import sandmesh.integrations.openai_agents",
}
STARTS: Final = frozenset({"local"})
"""The extras whose use starts a sandbox: they are only imported on a Python that sandboxes may not read."""
LEFT_OUT: Final = {
    "dev": "this repository's own",
    "release": "this repository's own",
    "verl": "is installed with what it trains with, gigabytes of it",
}
"""The extras that are not installed, and why."""
NEWER: Final = {"harbor": (3, 12)}
"""The extras that need a newer Python than the package."""


@dataclass(frozen=True)
class Installed:
    """How an extra was installed on a Python."""

    python: str
    extra: str
    seconds: float
    packages: int
    megabytes: float
    failure: str = ""
    note: str = ""


def extras_of(wheel: Path) -> list[str]:
    """Return the extras of a wheel that are installed, the empty one first.

    Raises:
        ValueError: An extra has neither a use here nor a reason to be left out.
    """
    command = ["unzip", "-p", str(wheel), "*.dist-info/METADATA"]
    metadata = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    prefix = "Provides-Extra: "
    found = [line.removeprefix(prefix) for line in metadata.splitlines() if line.startswith(prefix)]
    unknown = [extra for extra in found if extra not in USES and extra not in LEFT_OUT]
    if unknown:
        raise ValueError(f"say in scripts/release/installs.py what shows that these extras work: {', '.join(unknown)}")
    return [extra for extra in USES if not extra or extra in found]


def install_all(wheel: Path, pythons: Mapping[str, Path], extras: Sequence[str]) -> Iterator[Installed]:
    """Install each extra on each Python, and yield how that went."""
    for version, python in pythons.items():
        for extra in extras:
            if tuple(map(int, version.split(".")[:2])) >= NEWER.get(extra, (3, 0)):
                yield install(wheel, python, version, extra)


def install(wheel: Path, python: Path, version: str, extra: str) -> Installed:
    """Install an extra in a fresh environment, and use it."""
    only_imported = extra in STARTS and not is_for_everyone(python)
    with tempfile.TemporaryDirectory(prefix="sandmesh-install-") as folder:
        Path(folder).chmod(0o755)
        started = time.monotonic()
        own = Path(folder) / "env" / "bin" / "python"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        failure = _failure(tool("uv"), "venv", "--quiet", "--no-config", "--python", str(python), str(own.parents[1]))
        failure = failure or _failure(
            tool("uv"), "pip", "install", "--quiet", "--no-config", "--python", str(own), wanted
        )
        seconds = time.monotonic() - started
        failure = failure or _failure(tool("uv"), "pip", "check", "--quiet", "--python", str(own))
        failure = failure or _failure(str(own), "-c", _SERVER if only_imported else USES[extra])
        [site] = (own.parents[1] / "lib").glob("python3*/site-packages")
        size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
        packages = len([*site.glob("*.dist-info")])
        note = "imported only" if only_imported else ""
        return Installed(version, extra, seconds, packages, size / 1e6, failure, note)


def _failure(*command: str) -> str:
    """Return the last lines of a command that fails, empty where it does not."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    out = subprocess.PIPE
    done = subprocess.run(
        command, stdout=out, stderr=subprocess.STDOUT, text=True, env=environment, cwd="/", check=False
    )
    return (
        "" if done.returncode == 0 else " | ".join(done.stdout.strip().splitlines()[-4:]) or f"exit {done.returncode}"
    )


def table(rows: Sequence[Installed]) -> str:
    """Return a table in Markdown: an extra a line, with what each Python took."""
    pythons = list(dict.fromkeys(row.python for row in rows))
    lines = [f"| extra | packages | MB | {' | '.join(pythons)} |", "| --- " * (len(pythons) + 3) + "|"]
    for extra in dict.fromkeys(row.extra for row in rows):
        own = {row.python: row for row in rows if row.extra == extra}
        first = next(iter(own.values()))
        cells = [_cell(own[python]) if python in own else "" for python in pythons]
        name = f"`{extra}`" if extra else "the SDK, without an extra"
        lines.append(f"| {name} | {first.packages} | {first.megabytes:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Installed) -> str:
    if row.failure:
        return "failed"
    return f"{row.seconds:.1f} s" + (f", {row.note}" if row.note else "")
