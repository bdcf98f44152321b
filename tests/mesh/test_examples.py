"""The README's programs do what it says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


async def run_example(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / name), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("quickstart.py", ["2432902008176640000", "HELLO", "3 True"]),
        ("quickstart_async.py", ["['0', '1', '4', '9', '16']"]),
        ("live_output.py", ["step 1\nstep 2\nstep 3\n", "+for i in 1 2; do"]),
        ("sessions.py", ["2"]),
        ("environment.py", ["3 3 1.0\n7 7 1.0\n"]),
        ("mesh_client.py", [" base READY {'team': 'red'}", "'created'", "troubles: []"]),
    ],
)
async def test_an_example_prints_what_it_promises(name: str, expected: list[str]) -> None:
    printed = await run_example(name)
    for text in expected:
        assert text in printed


@pytest.mark.needs("chromium")
async def test_the_demo_of_a_browser_fills_a_form_and_saves_a_screenshot(tmp_path: Path) -> None:
    printed = await run_example("demo.py", "--browser", str(tmp_path))
    assert "http://127.0.0.1:" in printed
    assert "Ordered: ?name=Ada&leaves=black" in printed
    assert (tmp_path / "browser.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.needs("desktop")
async def test_the_example_of_a_desktop_types_into_a_program() -> None:
    printed = await run_example("desktop.py")
    assert "PNG" in printed
    assert "Grüße, 你好" in printed
