"""Meshes that are not there any more, or not as the address says."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import InvalidArgument, MeshUnavailable
from tests.mesh.commands import Commands, own_mesh_id
from tests.mesh.conftest import run_mesh
from tests.mesh.tenants.test_tls import TOKEN, files, port_of, tls_settings

__all__ = ["files"]


async def _refusal(url: str, ca_cert: Path | None = None) -> MeshUnavailable:
    with pytest.raises(MeshUnavailable) as caught:
        await BaseSandboxAsync(base_url=url, bearer_token=TOKEN, ca_cert=ca_cert, timeout=5).start()
    return caught.value


async def test_an_untrusted_certificate_is_not_a_mesh_that_does_not_answer(files: Path) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        port = port_of(mesh.addresses)
        error = await _refusal(f"grpcs://localhost:{port}")
        other = await _refusal(f"grpcs://127.0.0.2:{port}", files / "ca.pem")
    assert "no mesh answers" not in error.message + other.message
    assert "is not accepted: unable to get local issuer certificate: name the" in error.message
    assert "is not accepted: IP address mismatch" in other.message
    assert error.facts["fix"].startswith("name the certificate of the authority that signed it (ca_cert=, ")


async def test_plaintext_to_a_port_with_tls_is_not_a_mesh_that_does_not_answer(files: Path) -> None:
    async with run_mesh(**tls_settings(files)) as mesh:
        port = port_of(mesh.addresses)
        error = await _refusal(f"grpc://localhost:{port}")
    assert "no mesh answers" not in error.message
    assert "speaks TLS, and the address does not say so" in error.message
    assert error.facts["fix"].startswith(f"write grpcs://localhost:{port}")


async def test_tls_to_a_port_without_it_is_not_a_mesh_that_does_not_answer(files: Path) -> None:
    async with run_mesh(listen=("127.0.0.1:0",)) as mesh:
        port = port_of(mesh.addresses)
        error = await _refusal(f"https://127.0.0.1:{port}", files / "ca.pem")
    assert "does not speak TLS" in error.message
    assert error.facts["fix"].endswith(f"write http://127.0.0.1:{port}")


async def test_where_nothing_listens_a_mesh_is_to_be_started() -> None:
    for url in ("grpcs://127.0.0.1:1", "grpc://127.0.0.1:1"):
        assert (await _refusal(url)).message.startswith(f"no mesh answers at {url}: start one there (sandmesh up)")


@pytest.fixture
def served() -> Iterator[tuple[Commands, subprocess.Popen[bytes]]]:
    """Run a mesh in the foreground, which a test may kill; sandboxes outlive it."""
    with own_mesh_id() as commands:
        process = _up(commands)
        try:
            yield commands, process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=30)


def _up(commands: Commands) -> subprocess.Popen[bytes]:
    process = commands.start("up", "--keep")
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.mark.timeout(120)
async def test_a_new_call_ends_within_seconds_while_the_mesh_is_dead_and_one_under_way_goes_on_when_it_is_back(
    served: tuple[Commands, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, process = served
    monkeypatch.setenv("SANDMESH_NEW_CALL_SECONDS", "0.5")
    box = await BaseSandboxAsync(base_url=f"unix://{commands.settings.paths.gateway}").start()
    running = await box.processes.start("echo up; until [ -e go ]; do sleep 0.05; done; echo went on")
    await running.wait_for_log("up")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    for _ in range(2):
        async with asyncio.timeout(20):
            with pytest.raises(MeshUnavailable, match=r"for 0.5 s: start it again \(sandmesh up\), or call again"):
                await box.run_ipython_cell("1+1")
    again = _up(commands)
    try:
        await box.run_shell_command("touch go")
        await running.wait_for_log("went on", 30)
        assert (await running.wait(30)).exit_code == 0
        await box.close()
    finally:
        again.terminate()
        again.communicate(timeout=30)


async def test_the_time_for_new_calls_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("SANDMESH_NEW_CALL_SECONDS", value)
        with pytest.raises(InvalidArgument, match="SANDMESH_NEW_CALL_SECONDS is a number of seconds above 0"):
            await BaseSandboxAsync(base_url="unix:///nowhere").start()
