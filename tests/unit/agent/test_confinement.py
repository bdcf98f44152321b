"""What user code cannot reach: the agent, its socket, its namespaces, the host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb

from .client import TOKEN, Client
from .sandbox import Ground, Sandbox, children, start, talking
from .test_shell import run
from .test_shell import start as shell

pytestmark = pytest.mark.needs("user namespaces")


async def out(client: Client, command: str) -> str:
    """Return what a command wrote to both of its streams."""
    return (await run(client, f"exec 2>&1; {command}")).stdout.decode()


async def test_user_code_sees_no_process_of_the_agent(client: Client) -> None:
    listed = await out(client, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "--config-fd" not in listed
    assert "--ready-fd" not in listed


async def test_the_agents_socket_is_out_of_reach(client: Client) -> None:
    assert await out(client, "ls -A /run/agent") == ""
    assert "Read-only" in await out(client, "touch /run/agent/mine")


async def test_killing_everything_leaves_the_agent_answering(client: Client) -> None:
    assert await out(client, "kill -9 -1; kill -9 1; kill -STOP 1; echo still here") == "still here\n"
    assert await out(client, "echo next") == "next\n"


async def test_the_zygote_is_closed_to_user_code(client: Client) -> None:
    for name in ("environ", "mem", "fd/0", "maps", "root/etc/passwd"):
        assert "denied" in (await out(client, f"head -c 1 /proc/1/{name}")).lower()


async def test_there_are_no_capabilities_and_no_ways_to_new_ones(client: Client) -> None:
    status = await out(client, "cat /proc/self/status")
    values = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {values[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert values["NoNewPrivs"] == "1"
    assert values["Seccomp"] == "2"
    assert (await run(client, "unshare --user true")).result.is_error
    assert (await run(client, "mount -t tmpfs none /tmp")).result.is_error


async def test_user_code_has_no_user_namespaces_to_make(client: Client) -> None:
    # Beside the filter of system calls, which denies them by name: one of these two may have a hole.
    assert await out(client, "cat /proc/sys/user/max_user_namespaces") == "0\n"


async def test_system_settings_are_mounted_read_only(client: Client) -> None:
    mounts = [line.split() for line in (await out(client, "cat /proc/self/mounts")).splitlines()]
    [options] = [options for _, place, _, options, *_ in mounts if place == "/proc/sys"][-1:]
    assert options.split(",")[0] == "ro"


async def test_system_settings_and_the_system_are_read_only(client: Client) -> None:
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/user/max_user_namespaces", "/usr/mine", "/opt/env/mine"):
        assert (await run(client, f"echo 1 > {path}")).result.is_error


async def test_no_descriptor_of_the_agent_or_the_driver_is_inherited(client: Client) -> None:
    # ls itself opens the directory that it lists.
    links = await out(client, "ls -l /proc/self/fd | tail -n +2 | awk '{print $NF}'")
    kinds = sorted({link.split(":")[0] for link in links.split()})
    assert [kind for kind in kinds if kind not in {"pipe", "/dev/null"} and not kind.startswith("/proc/")] == []
    code = """
        import os
        for name in os.listdir('/proc/self/fd'):
            if os.path.lexists(f'/proc/self/fd/{name}'):
                print(os.readlink(f'/proc/self/fd/{name}').replace(':[eventpoll]', '-of-its-loop').split(':')[0])
    """
    ended = await client.start("run_ipython_cell", json.dumps({"code": code}).encode()).end()
    assert set(ended.stdout.decode().split()) <= {"/dev/null", "pipe", "socket", "anon_inode-of-its-loop"}


async def test_the_token_is_nowhere_in_what_user_code_can_read(client: Client) -> None:
    pattern = TOKEN.replace(" ", ".").replace("'", ".").replace("k", "[k]")
    found = await out(
        client, f"grep -sl {pattern} /proc/[0-9]*/environ /proc/[0-9]*/cmdline; grep -rsl {pattern} /tmp /run"
    )
    assert found == ""


async def test_environment_is_the_configured_one_alone(client: Client) -> None:
    names = {line.partition("=")[0] for line in (await out(client, "env")).splitlines()}
    assert names - {"PATH", "HOME", "PWD", "SHLVL", "_", "OLDPWD", "LANG"} <= {"MPLBACKEND", "MPLCONFIGDIR"}


def test_the_agent_ends_with_its_driver(ground: Ground) -> None:
    with start(ground) as (sandbox, _):
        pid = sandbox.agent_pid
    assert not Path(f"/proc/{pid}").exists()


def test_the_loss_of_the_zygote_ends_the_agent(ground: Ground) -> None:
    with start(ground) as (sandbox, _):
        (zygote,) = children(sandbox.agent_pid)
        os.kill(zygote, signal.SIGKILL)
        assert sandbox.process.wait(timeout=10) != 0


async def test_the_loss_of_a_zygote_that_leaves_requests_unread_ends_the_agent(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        (zygote,) = children(sandbox.agent_pid)
        os.kill(zygote, signal.SIGSTOP)
        client.start("run_shell_command", b'{"command": "true"}')
        for _ in range(2):
            # When the second is answered, what the call asks of the zygote is under way.
            await client.ask(ping=agent_pb2.Ping())
        os.kill(zygote, signal.SIGKILL)
        assert sandbox.process.wait(timeout=10) != 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"python": "/nowhere/python"}, "/nowhere/python"),
        ({"hidden_directory": "/nowhere"}, "mount of tmpfs on /nowhere"),
        ({"listen": "carrier-pigeon://x"}, "unix:///path"),
        ({"no_such_field": 1}, "no_such_field"),
    ],
)
def test_an_agent_that_cannot_start_says_why(ground: Ground, changed: dict[str, object], said: str) -> None:
    with start(ground, **changed) as (sandbox, line):
        assert said in json.loads(line)["error"]
        assert sandbox.process.wait(timeout=10) != 0


async def test_processes_run_under_an_unprivileged_uid_of_the_host(client: Client, sandbox: Sandbox) -> None:
    call = shell(client, "echo runs; sleep 60")
    await call.until(b"runs")
    uids = await asyncio.to_thread(uids_below, sandbox.process.pid)
    call.send(cancel=pb.Cancel())
    await call.end()
    assert len(uids) >= 4
    assert 0 not in uids.values()


def uids_below(pid: int) -> dict[int, int]:
    """Return the uids on the host of a process and all below it; one that ends meanwhile has none."""
    found: dict[int, int] = {}
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        found[pid] = int(status.split("Uid:")[1].split()[0])
        for child in children(pid):
            found |= uids_below(child)
    return found
