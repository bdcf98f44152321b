"""`up`, `down` and `doctor`: a mesh's life as a person sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from sandmeshd.cli.mesh.log_file import MAX_BYTES
from sandmeshd.runtime.locks import holder
from tests.mesh.commands import Commands, own_mesh_id


@pytest.fixture
def sandmesh() -> Generator[Commands]:
    """Give the commands and a mesh id that nobody uses."""
    with own_mesh_id() as commands:
        yield commands


def folders(commands: Commands) -> list[str]:
    """Return what has a folder: sandboxes, and those that are prepared for a create to come."""
    place = commands.settings.paths.sandboxes
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def ready_line(process: subprocess.Popen[bytes]) -> dict[str, object]:
    """Read what a mesh in the foreground says when it is ready."""
    assert process.stdout is not None
    said: dict[str, object] = json.loads(process.stdout.readline())
    return said


def test_a_detached_mesh_is_found_used_and_ended_with_its_sandboxes(sandmesh: Commands) -> None:
    started = sandmesh.run("up", "-d", "--pool", "base=1", "-o", "json").json
    assert started["addresses"][0].startswith("unix://")
    assert Path(started["log"]).exists()
    assert sandmesh.run("run", "--", "echo", "hi").out == "hi\n"
    ended = sandmesh.run("down", "-o", "json").json
    assert ended["pid"] == started["pid"]
    assert ended["kept"] == 0
    assert folders(sandmesh) == []
    assert holder(sandmesh.settings.paths.lock) is None
    again = sandmesh.run("down")
    assert f"No mesh {sandmesh.settings.mesh_id}" in again.out


def test_each_base_url_that_up_lists_is_one_that_clients_can_use(sandmesh: Commands) -> None:
    lines = sandmesh.run("up", "-d", "--listen", "127.0.0.1:0").out.splitlines()
    [first, end] = [number for number, line in enumerate(lines) if line.endswith(":")]
    base_urls = [line.strip() for line in lines[first + 1 : end]]
    assert [url.partition("://")[0] for url in base_urls] == ["unix", "grpc"]
    for url in base_urls:
        assert sandmesh.run("ls", "-o", "json", "--base-url", url).json == []
    assert "not a base_url" in lines[end]
    assert lines[end + 1].strip().startswith("http://")


def test_kept_sandboxes_are_there_at_the_next_start(sandmesh: Commands) -> None:
    sandmesh.run("up", "-d", "--pool", "base=1")
    [before] = pooled(sandmesh)
    assert "kept for the next start: 1" in sandmesh.run("down", "--keep").out
    assert folders(sandmesh) == [before]
    sandmesh.run("up", "-d", "--pool", "base=1")
    assert pooled(sandmesh) == [before]


def pooled(commands: Commands) -> list[str]:
    """Wait until a pool has a sandbox that is ready, and give all that there are."""
    while not (found := commands.run("ls", "--all", "-o", "json").json) or found[0]["state"] != "SANDBOX_STATE_READY":
        pass
    return [one["sandbox_id"] for one in found]


def test_what_a_killed_mesh_left_is_removed_by_down(sandmesh: Commands) -> None:
    started = sandmesh.run("up", "-d", "--pool", "base=1", "-o", "json").json
    pooled(sandmesh)
    os.kill(started["pid"], signal.SIGKILL)
    while holder(sandmesh.settings.paths.lock) is not None:
        pass
    assert len([name for name in folders(sandmesh) if not name.startswith(".")]) == 1
    assert "deleted: 1" in sandmesh.run("down").out
    assert folders(sandmesh) == []


def test_the_log_of_a_mesh_in_the_background_is_rotated_while_it_runs(sandmesh: Commands) -> None:
    log = Path(sandmesh.run("up", "-d", "-o", "json").json["log"])
    with log.open("ab", buffering=0) as file:
        file.truncate(MAX_BYTES)
        # The mesh may look at any moment: one write makes the log too long.
        file.write(b"the last line before it is rotated\n")
    while log.stat().st_size > MAX_BYTES:
        pass
    # What the mesh itself logs may follow.
    assert b"\0the last line before it is rotated\n" in log.with_suffix(".log.1").read_bytes()
    # It goes on logging to the same file.
    sandmesh.run("run", "--", "echo", "hi")
    assert log.stat().st_size < MAX_BYTES
    os.kill(holder(sandmesh.settings.paths.lock) or 0, signal.SIGTERM)
    while holder(sandmesh.settings.paths.lock) is not None:
        pass
    assert b"the mesh is empty" in log.read_bytes()


def test_ctrl_c_ends_a_mesh_in_the_foreground_without_a_word_too_many(sandmesh: Commands) -> None:
    process = sandmesh.start("up", "-o", "json", "--pool", "base=1")
    try:
        assert ready_line(process)["pid"] == process.pid
        pooled(sandmesh)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert out == b""
    assert b"Traceback" not in err
    assert b"goaway" not in err.lower()
    assert folders(sandmesh) == []


def test_a_mesh_that_cannot_start_says_why_to_who_started_it_in_the_background(sandmesh: Commands) -> None:
    refused = sandmesh.run("up", "-d", "--listen", "0.0.0.0:0", ok=False)
    assert refused.code == 2
    assert "TLS" in refused.err
    sandmesh.run("up", "-d")
    second = sandmesh.run("up", "-d", ok=False)
    assert second.code == 1
    assert "runs already" in second.err


def test_the_doctor_looks_at_the_machine_the_drivers_and_the_mesh(sandmesh: Commands) -> None:
    found = {finding["name"]: finding for finding in sandmesh.run("doctor", "-o", "json").json}
    assert found["bubblewrap"]["health"] == "ok"
    assert found["local mesh"]["fix"] == ""
    assert {"bwrap", "user namespaces", "libseccomp", "cgroups", "interpreter", "disk", "docker", "gvisor"} <= set(
        found
    )
    said = sandmesh.run("doctor").out
    assert "No problems found." in said
    groups = [line for line in said.splitlines() if line and not line.startswith(" ")]
    assert [group for group in groups if group != "Limits of this machine"] == [
        "Works",
        "Optional",
        "No problems found.",
    ]


def test_the_doctor_tries_every_driver_and_says_how_to_mend_what_does_not_work(sandmesh: Commands) -> None:
    nowhere = "unix:///nowhere/docker.sock"
    done = sandmesh.run("doctor", "-o", "json", SANDMESH_DOCKER_URL=nowhere)
    found = {finding["name"]: finding for finding in done.json if finding["part"] == "driver"}
    assert found["bubblewrap"]["seen"].startswith("works")
    for name in ("docker", "gvisor"):
        assert found[name]["health"] == "-"
        assert "does not answer" in found[name]["seen"]
        assert "so that it listens at /nowhere/docker.sock" in found[name]["fix"]
    settings = {"SANDMESH_DRIVER": "docker", "SANDMESH_DOCKER_URL": nowhere}
    chosen = replace(sandmesh, environment=settings).run("doctor", "-o", "json", ok=False)
    assert chosen.code == 1
    found = {finding["name"]: finding for finding in chosen.json if finding["part"] == "driver"}
    assert found["docker"]["health"] == "problem"
    assert found["docker"]["fix"] not in found["docker"]["seen"]
    assert found["bubblewrap"]["health"] == "ok"
    assert "SANDMESH_DRIVER=bubblewrap" in found["bubblewrap"]["seen"]


def test_the_doctor_names_a_runtime_directory_that_is_too_long(sandmesh: Commands, tmp_path: Path) -> None:
    long = str(tmp_path / ("x" * 90))
    done = sandmesh.run("doctor", "-o", "json", ok=False, SANDMESH_RUNTIME_DIRECTORY=long)
    assert done.code == 1
    [finding] = [finding for finding in done.json if finding["name"] == "runtime directory"]
    assert finding["health"] == "problem"
    assert "SANDMESH_RUNTIME_DIRECTORY" in finding["fix"]
