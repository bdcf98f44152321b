"""What the doctor says of an engine and of gVisor on it."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmeshd.cli.doctor.engines import check_engine
from sandmeshd.cli.doctor.findings import Finding, Health
from sandmeshd.mesh import MeshSettings

WHOLE = ["--network=none", "--host-uds=create", "--host-fifo=open"]


class _Answer(socketserver.StreamRequestHandler):
    body = b""

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(self.body), self.body))


@contextmanager
def _engine(path: Path, runtimes: dict[str, object]) -> Generator[None]:
    answer = type("Answer", (_Answer,), {"body": json.dumps({"Runtimes": runtimes}).encode()})
    with socketserver.UnixStreamServer(str(path), answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _seen(path: Path, driver: str = "bubblewrap") -> Finding:
    findings = check_engine(MeshSettings.model_validate({"docker_url": f"unix://{path}", "driver": driver}))
    return {finding.name: finding for finding in findings}["gvisor"]


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
