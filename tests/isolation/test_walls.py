"""What user code does to its surroundings, and what that does to agent, driver, neighbours and host: nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.conformance.inside import call, run, run_cell

from .conftest import Neighbours
from .decoys import Decoys

BOMB = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        break
print("full", flush=True)
time.sleep(1000)
"""

FORGE = """
import os, stat, struct
for number in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, {frames})
    except OSError:
        pass
"""

FRAMES = (
    "os.urandom(4096)",
    "struct.pack('!IB', 0xFFFFFFFF, 16)",
    "struct.pack('!IB', 7, 19) + b'forged'",
    "struct.pack('!IB', 7, 16) + b'forged'",
    "b''.join(struct.pack('!IB', 1, kind) for kind in range(256))",
)
"""Noise, a frame of 4 GiB, an end before the end, a block that is no JSON, and every kind of frame."""


async def answers(neighbours: Neighbours) -> None:
    """Check that both sandboxes run programs and cells."""
    for sandbox in (neighbours.one, neighbours.two):
        assert (await run(sandbox, "echo $(echo alive)")).stdout == "alive\n"
        assert (await run_cell(sandbox, "print(6 * 7)")).stdout == "42\n"


async def test_killing_everything_leaves_both_sandboxes_answering(neighbours: Neighbours) -> None:
    for name in ("KILL", "TERM", "HUP", "SEGV"):
        await run(neighbours.one, f"kill -{name} -1; kill -{name} 1; for i in $(seq 300); do kill -{name} $i; done")
    await run(neighbours.one, "kill -STOP 1; kill -STOP -1; kill -CONT -1")
    await run_cell(neighbours.one, "import os; os.kill(-1, 9)")
    await answers(neighbours)


async def test_forged_frames_of_a_kernel_hurt_itself_alone(neighbours: Neighbours) -> None:
    for frames in FRAMES:
        await run_cell(neighbours.one, FORGE.format(frames=frames))
        await run_cell(neighbours.one, "pass")
        await answers(neighbours)


async def test_a_fork_bomb_leaves_neighbours_able_to_fork(neighbours: Neighbours) -> None:
    full = "mkfifo bomb; python3 -c '{}' > bomb & read said < bomb; echo $said"  # nothing here forks once it is full
    bombed = await run(neighbours.one, full.format(BOMB))
    assert bombed.stdout == "full\n"
    forks = "for i in $(seq 50); do true & done; wait; echo $(echo alive)"
    assert (await run(neighbours.two, forks)).stdout == "alive\n"
    await neighbours.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert (await run(neighbours.two, "echo $(echo alive)")).stdout == "alive\n"


async def test_no_process_of_a_sandbox_is_the_hosts_root(neighbours: Neighbours) -> None:
    await run_cell(neighbours.one, "import subprocess; subprocess.Popen(['sleep', '1000'])")
    init = neighbours.folder(neighbours.one).status_value("child-pid")
    assert init is not None
    uids = list(uids_below(init))
    assert len(uids) >= 4
    assert 0 not in uids


async def test_nothing_that_left_its_group_outlives_its_sandbox(neighbours: Neighbours) -> None:
    seconds = f"{100_000 + secrets.randbelow(900_000)}"
    code = f"import os; os.fork() and os._exit(0); os.setsid(); os.execlp('sleep', 'sleep', '{seconds}')"
    await run(neighbours.one, f'python3 -c "{code}" >/dev/null 2>&1; until pgrep -f "^sleep {seconds}"; do :; done')
    assert f"sleep {seconds}" in commands()
    await neighbours.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert f"sleep {seconds}" not in commands()


async def test_file_tools_follow_no_link_out_of_the_workspace(neighbours: Neighbours, decoys: Decoys) -> None:
    for place in (str(decoys.file), "/etc/hostname", "/proc/self/environ", "/proc/1/environ", "/run/agent"):
        links = f"ln -s {place} link; ln -s / root; ln -s ../../../../{place} inner/link"
        await run(neighbours.one, f"rm -rf *; mkdir inner; {links}")
        for path in ("link", "inner/link", f"root{place}", place, f"../..{place}"):
            for tool, more in (("read_file", {}), ("write_file", {"content": "forged"}), ("list_directory", {})):
                done = await call(neighbours.one, tool, {"path": path, **more})
                assert done.message, f"{tool} {path}: {done.content}"
                assert decoys.secret not in done.content
    assert decoys.file.read_text() == decoys.secret


async def test_deleting_follows_no_link_and_stops_at_no_mode(neighbours: Neighbours, decoys: Decoys) -> None:
    links = f"ln -s {decoys.folder} out; ln -s {decoys.file} file; ln -s {decoys.folder} shut/in/out"
    deep = "import os\nfor _ in range(1000): os.mkdir('d'); os.chdir('d')"
    shut = "mkfifo pipe; touch shut/in/file; chmod 0 shut/in/file shut/in/deeper shut/in shut; chmod 0 /workspace"
    await run(neighbours.one, f'mkdir -p shut/in/deeper; {links}; python3 -c "{deep}"; {shut}')
    root = neighbours.folder(neighbours.one).root
    await neighbours.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="one"))
    assert not root.exists()
    assert decoys.file.read_text() == decoys.secret
    assert decoys.socket.is_socket()


async def test_a_sandbox_cannot_touch_its_own_record(neighbours: Neighbours) -> None:
    folder = neighbours.folder(neighbours.one)
    before = folder.spec.read_bytes()
    await run(neighbours.one, "echo x > ../spec.json; mv /workspace /elsewhere; ln -s .. up; echo x > up/lock")
    assert folder.spec.read_bytes() == before
    names = {path.name for path in folder.root.iterdir()}
    assert names == {"home", "lock", "log", "spec.json", "status.json", "workspace"}


async def test_other_users_of_the_host_reach_neither_workspace_nor_agent(neighbours: Neighbours) -> None:
    folder = neighbours.folder(neighbours.one)
    for path in (folder.workspace, folder.home, folder.sockets):
        assert path.stat().st_mode & 0o077 == 0
    assert folder.root.stat().st_mode & 0o066 == 0
    assert folder.spec.stat().st_mode & 0o077 == 0


def uids_below(pid: int) -> Iterator[int]:
    """Return the users of a process and of all below it; one that ends meanwhile is none of them."""
    with suppress(FileNotFoundError, ProcessLookupError):
        yield uid_of(pid)
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in children.read_text().split():
                yield from uids_below(int(child))


def uid_of(pid: int) -> int:
    """Return the user of a process as the host sees it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))


def commands() -> str:
    """Return the command lines of all processes of the host."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return "\n".join(found)


def test_the_suite_looks_as_who_the_mesh_runs_as() -> None:
    assert uid_of(os.getpid()) == os.geteuid()
