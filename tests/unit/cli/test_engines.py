"""What the doctor says of an engine and of gVisor on it."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmeshd.cli.doctor.engines import check_engine
from sandmeshd.cli.doctor.findings import Finding, Health
from sandmeshd.mesh import MeshSettings

WHOLE = ["--network=none", "--host-uds=create", "--host-fifo=open"]


class _Answer(socketserver.StreamRequestHandler):
    info = b""
    images: Mapping[str, int]

    def handle(self) -> None:
        path = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        size = self.images.get(path.removeprefix("/images/").removesuffix("/json"))
        image = json.dumps({"Size": size} if size else {"message": "No such image"}).encode()
        body = self.info if path == "/info" else image
        status = b"200 OK" if path == "/info" or size else b"404 Not Found"
        self.wfile.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))


@contextmanager
def _engine(path: Path, runtimes: dict[str, object], images: Mapping[str, int] | None = None) -> Generator[None]:
    info = json.dumps({"Runtimes": runtimes}).encode()
    answer = type("Answer", (_Answer,), {"info": info, "images": images or {}})
    with socketserver.UnixStreamServer(str(path), answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _seen(path: Path, driver: str = "bubblewrap", name: str = "gvisor") -> Finding:
    findings = check_engine(MeshSettings.model_validate({"docker_url": f"unix://{path}", "driver": driver}))
    return {finding.name: finding for finding in findings}[name]


def _runsc(arguments: Sequence[str]) -> dict[str, object]:
    return {"runc": {"path": "runc"}, "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": arguments}}


def test_gvisor_is_well_where_runsc_is_registered_as_it_should_be(tmp_path: Path) -> None:
    with _engine(tmp_path / "s", _runsc(WHOLE)):
        assert _seen(tmp_path / "s").health is Health.GOOD


@pytest.mark.parametrize(("driver", "health"), [("bubblewrap", Health.UNKNOWN), ("gvisor", Health.BAD)])
@pytest.mark.parametrize(
    ("runtimes", "said"),
    [({"runc": {}}, "no runtime runsc"), (_runsc(WHOLE[:1]), "without --host-uds=create")],
)
def test_what_is_missing_is_a_problem_of_who_chose_it(
    tmp_path: Path, runtimes: dict[str, object], said: str, driver: str, health: Health
) -> None:
    with _engine(tmp_path / "s", runtimes):
        found = _seen(tmp_path / "s", driver)
    assert found.health is health
    assert said in found.seen
    assert "/etc/docker/daemon.json" in found.fix + found.seen


def test_without_an_engine_it_is_not_looked_for(tmp_path: Path) -> None:
    assert "runs on Docker" in _seen(tmp_path / "s").seen


def test_an_engine_that_does_not_answer_is_told(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    assert "does not answer" in _seen(tmp_path / "s").seen


@pytest.mark.parametrize(("driver", "health"), [("bubblewrap", Health.UNKNOWN), ("docker", Health.WARNING)])
def test_an_image_that_is_not_built_is_named_with_the_command_that_builds_it(
    tmp_path: Path, driver: str, health: Health
) -> None:
    with _engine(tmp_path / "s", _runsc(WHOLE), {"sandmesh/browser:latest": 877_000_000}):
        browser = _seen(tmp_path / "s", driver, "image of browser")
        gui = _seen(tmp_path / "s", driver, "image of gui")
    assert browser.health is Health.GOOD
    assert browser.seen == "sandmesh/browser:latest, 877 MB"
    assert gui.health is health
    assert "sandmesh build gui --driver docker" in gui.fix + gui.seen
