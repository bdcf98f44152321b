"""What code in a real sandbox can and cannot reach, by the ways that programs take and by others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from tests.isolation.world import Box, World, new_paths, open_world
from tests.unit.drivers.egress.harness import Names, host, serving

CURL = "curl -sS -m 20 -w ' %{http_code}'"

AROUND = """
import json, socket
def fails(kind, family, address, data=b"x"):
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(2)
            one.connect(address)
            one.send(data)
            one.recv(1)
    except OSError:
        return True
    return False
def raw(family, kind, protocol):
    try:
        socket.socket(family, kind, protocol).close()
    except OSError:
        return True
    return False
def unresolved(name):
    try:
        socket.getaddrinfo(name, 80)
    except OSError:
        return True
    return False
T, U, I4, I6 = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.AF_INET, socket.AF_INET6
print(json.dumps({
    "tcp": fails(T, I4, ("1.1.1.1", 443)),
    "the host's port": fails(T, I4, ("127.0.0.1", PORT)),
    "the host's port by its address": all(fails(T, I4, (a, PORT)) for a in ADDRESSES),
    "tcp6": fails(T, I6, ("2606:4700:4700::1111", 443)),
    "dns": fails(U, I4, ("1.1.1.1", 53)),
    "dns of the host": all(fails(U, I4, (a, 53)) for a in ["127.0.0.53", "10.255.255.53"]),
    "link-local": fails(T, I4, ("169.254.169.254", 80)),
    "a name": unresolved("index.test"),
    "raw": raw(I4, socket.SOCK_RAW, 1) and raw(I4, socket.SOCK_RAW, 6),
    "packet": raw(17, socket.SOCK_RAW, 3),
    "netlink": raw(16, socket.SOCK_RAW, 0),
    "vsock": raw(40, T, 0),
}))
"""

SOCKETS = """
import json, os, socket, stat
def answers(name):
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(name) == 0
found = []
for root, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if root != "/" or name not in ("proc", "sys", "usr")]
    paths = [os.path.join(root, name) for name in names]
    found += [path for path in paths if stat.S_ISSOCK(os.lstat(path).st_mode) and answers(path)]
names = [line.split()[-1] for line in list(open("/proc/net/unix"))[1:]]
print(json.dumps(found + [name for name in names if name.startswith("@") and answers(chr(0) + name[1:])]))
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Start a world in which index.test and other.test are at this machine, and rebound.test from its second lookup."""
    here = [["10.7.7.7"]]
    names = Names(localhost=here, index_test=here, other_test=here, rebound_test=[["203.0.113.1"], ["127.0.0.1"]])
    async with new_paths() as paths, open_world(names, paths) as made:
        yield made


async def status(box: Box, arguments: str) -> str:
    """Return the status that curl ends with, or its own exit code where there is none."""
    done = await box.shell(f"{CURL} {arguments} 2>/dev/null")
    return done.stdout.rpartition(" ")[2] if done.exit_code == 0 else f"exit {done.exit_code}"


async def test_a_granted_host_is_reached_and_no_other(world: World) -> None:
    async with host() as there, world.box(f"index.test:{there.port}") as box:
        at = f"index.test:{there.port}"
        assert (await box.shell(f"{CURL} http://{at}/")).stdout == "hello 200"
        assert (await box.shell(f"{CURL} -p http://{at}/")).stdout == "hello 200"
        refused = await box.shell(f"{CURL} http://other.test:{there.port}/")
        assert f'network=["other.test:{there.port}"]' in refused.stdout
        for url in ("http://index.test/", f"http://127.0.0.1:{there.port}/", f"http://[::1]:{there.port}/"):
            assert await status(box, f"--noproxy '' {url}") == "403"


async def test_sandboxes_reach_nothing_without_the_proxy(world: World) -> None:
    async with host() as there:
        probe = AROUND.replace("PORT", str(there.port)).replace("ADDRESSES", repr(["10.0.2.2", "172.17.0.1"]))
        for grant in ("none", "public"):
            async with world.box(grant) as box:
                held = await box.json(probe)
            assert [name for name, holds in held.items() if not holds] == []
        assert there.got == []


async def test_a_sandbox_without_a_grant_has_no_proxy(world: World) -> None:
    async with world.box("none") as box:
        assert "proxy" not in (await box.shell("env")).stdout.lower()
        assert await status(box, "-x http://127.0.0.1:3128 http://index.test/") == "exit 7"


async def test_the_host_is_refused_by_all_its_names(world: World) -> None:
    async with host() as there, world.box("public", f"index.test:{there.port}") as box:
        port = there.port
        program = f"""
import json, socket
hosts = ["127.0.0.1", "localhost", "0x7f000001", "2130706433", "017700000001", "127.1", "0.0.0.0", "[::1]", "[::]",
         "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "other.test", "index.test.",
         "169.254.169.254", "10.0.0.1", "index.test@other.test", "index.test%00.other.test",
         "index.test\\\\.other.test"]
seen = {{}}
for name in hosts:
    for port in (80, {port}):
        with socket.create_connection(("127.0.0.1", 3128), 20) as one:
            one.sendall(f"CONNECT {{name}}:{{port}} HTTP/1.0\\r\\n\\r\\n".encode())
            seen[f"{{name}}:{{port}}"] = one.recv(4096).split(b" ")[1].decode()
print(json.dumps(seen))
"""
        seen = await box.json(program)
    granted = {name for name, answer in seen.items() if not answer.startswith("4")}
    assert granted == {f"index.test.:{port}"}


async def test_a_name_that_changes_between_check_and_connection_gains_nothing(world: World) -> None:
    async with host() as there, world.box("public", "index.test") as box:
        # Its first answer is no public address either, so that this test reaches nobody; the second is this machine.
        for _ in range(2):
            assert await status(box, "http://rebound.test/") == "403"
        assert world.names.lookups.count("rebound.test") == 2
        assert there.got == []


async def test_a_redirect_to_a_private_address_is_not_followed(world: World) -> None:
    async with host() as secret:
        moved = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{secret.port}/\r\nContent-Length: 0\r\n\r\n"
        async with host(moved.encode()) as there, world.box(f"index.test:{there.port}") as box:
            assert await status(box, f"-L --noproxy '' http://index.test:{there.port}/") == "403"
        assert secret.got == []


async def test_a_sandbox_cannot_use_another_ones_proxy_or_the_agents_link(world: World) -> None:
    async with host() as there, world.box(f"index.test:{there.port}") as granted, world.box("none") as poor:
        assert await status(granted, f"http://index.test:{there.port}/") == "200"
        assert await status(poor, f"-x http://127.0.0.1:3128 http://index.test:{there.port}/") == "exit 7"
        assert await poor.json(SOCKETS) == []
        assert await granted.json(SOCKETS) == []


async def test_refusals_come_with_the_watch_once_for_many(world: World) -> None:
    async with world.box("index.test") as box:
        heard: asyncio.Queue[pb.EgressRefusal] = asyncio.Queue()

        async def watch() -> None:
            async for change in world.driver.watch_sandboxes(pb.WatchSandboxesRequest(mesh_id=world.mesh_id)):
                if change.HasField("egress_refusal"):
                    heard.put_nowait(change.egress_refusal)
                elif change.synced:
                    synced.set()

        synced = asyncio.Event()
        watching = asyncio.create_task(watch())
        refusals: list[pb.EgressRefusal] = []
        async with asyncio.timeout(60):
            await synced.wait()
            await box.shell(f"{CURL} 'http://evil.test/[1-20]'")
            while sum(refusal.count for refusal in refusals) < 20:
                refusals.append(await heard.get())
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert {(refusal.sandbox_id, refusal.host, refusal.port) for refusal in refusals} == {
        (box.runtime.sandbox_id, "evil.test", 80)
    }
    assert sum(refusal.count for refusal in refusals) == 20
    assert len(refusals) < 20
    assert "not among the hosts" in refusals[0].reason


async def test_a_stuck_connection_holds_up_no_other(world: World) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * (8 << 20))
        await writer.drain()

    async with (
        serving(flood) as port,
        host() as there,
        world.box(f"index.test:{port}", f"other.test:{there.port}") as box,
    ):
        program = f"""
import json, socket, urllib.request
stuck = [socket.create_connection(("127.0.0.1", 3128), 20) for _ in range(8)]
for one in stuck:
    one.sendall(b"GET http://index.test:{port}/ HTTP/1.0\\r\\n\\r\\n")
    one.recv(1)
print(json.dumps(urllib.request.urlopen("http://other.test:{there.port}/", timeout=20).read().decode()))
"""
        assert await box.json(program) == "hello"


async def test_too_many_connections_are_told_so(world: World) -> None:
    async with world.box("index.test") as box:
        program = """
import json, socket
held = [socket.create_connection(("127.0.0.1", 3128), 20) for _ in range(64)]
for one in held:
    one.sendall(b"GET http")
with socket.create_connection(("127.0.0.1", 3128), 20) as one:
    print(json.dumps(one.recv(4096).split(b" ")[1].decode()))
"""
        assert await box.json(program) == "503"


async def test_a_driver_that_starts_again_carries_on() -> None:
    names = Names(index_test=[["10.7.7.7"]])
    async with host() as there, new_paths() as paths:
        async with open_world(names, paths) as before:
            box = await before.make("sb_stays", f"index.test:{there.port}")
            assert await status(box, f"http://index.test:{there.port}/") == "200"
        asking = asyncio.create_task(status(box, f"http://index.test:{there.port}/"))
        async with open_world(names, paths) as after:
            assert await asking == "200"
            assert await status(box, "http://other.test/") == "403"
            await after.remove("sb_stays")


async def change(world: World, box: Box, *hosts: str) -> pb.ChangeNetworkResponse:
    """Put a grant of hosts in force, none where there are no hosts."""
    mode = sandbox_pb2.NETWORK_MODE_HOSTS if hosts else sandbox_pb2.NETWORK_MODE_NONE
    grant = sandbox_pb2.NetworkGrant(mode=mode, hosts=hosts)
    request = pb.ChangeNetworkRequest(sandbox_id=box.runtime.sandbox_id, grant=grant)
    return await world.driver.change_network(request)


async def test_a_changed_grant_holds_for_new_connections_and_ends_those_it_does_not_allow(world: World) -> None:
    held: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        held.put_nowait(reader)
        while await reader.read(1024):
            pass

    program = """
import json, socket
kept = []
for target in TARGETS:
    one = socket.create_connection(("127.0.0.1", 3128), 20)
    one.sendall(f"CONNECT {target} HTTP/1.0\\r\\n\\r\\n".encode())
    got = b""
    while not got.endswith(b"\\r\\n\\r\\nx"):
        got += one.recv(4096)
    kept.append(one)
try:
    ended = kept[0].recv(1) == b""
except ConnectionResetError:
    ended = True
kept[1].sendall(b"still here")
print(json.dumps(ended))
"""
    async with serving(hold) as port, host() as there:
        first, second, third = f"index.test:{port}", f"other.test:{port}", f"other.test:{there.port}"
        async with world.box(first, second) as box, asyncio.timeout(60):
            asking = asyncio.create_task(box.json(program.replace("TARGETS", repr([first, second]))))
            readers = [await held.get(), await held.get()]
            assert await status(box, f"http://{third}/") == "403"
            changed = await change(world, box, second, third)
            assert await asking is True
            assert readers[0].at_eof()
            assert await status(box, f"http://{third}/") == "200"
            assert await status(box, f"http://{first}/") == "403"
            open_ones = {one.host: (one.connections, one.open_connections) for one in changed.hosts}
            assert open_ones[second] == (1, 1)
            await change(world, box)
            assert await status(box, f"http://{third}/") == "403"
            counted = {row.host: row for row in (await change(world, box, third)).hosts}
            assert counted[second].sent_bytes >= len(b"still here")
            assert counted[third].received_bytes >= len(b"hello")
            assert await status(box, f"http://{third}/") == "200"


async def test_a_sandbox_made_without_a_network_gets_none_later(world: World) -> None:
    async with world.box("none") as box:
        with pytest.raises(CapabilityMissing, match="made with the network none"):
            await change(world, box, "index.test")


async def test_a_change_from_a_grant_that_is_no_longer_in_force_changes_nothing(world: World) -> None:
    async with world.box("index.test") as box:
        grant = sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_PUBLIC)
        request = pb.ChangeNetworkRequest(sandbox_id=box.runtime.sandbox_id, grant=grant, replaces=grant)
        assert list((await world.driver.change_network(request)).grant.hosts) == ["index.test"]


async def test_a_changed_grant_outlives_the_driver() -> None:
    names = Names(index_test=[["10.7.7.7"]], other_test=[["10.7.7.7"]])
    async with host() as there, new_paths() as paths:
        first, second = (f"{name}.test:{there.port}" for name in ("index", "other"))
        async with open_world(names, paths) as before:
            box = await before.make("sb_changed", first)
            await change(before, box, second)
        asking = asyncio.create_task(status(box, f"http://{second}/"))
        async with open_world(names, paths) as after:
            assert await asking == "200"
            assert await status(box, f"http://{first}/") == "403"
            await after.remove("sb_changed")
        assert list((paths.node_state / "grants").iterdir()) == []


async def test_an_operator_keeps_sandboxes_out_of_the_nodes_network() -> None:
    names = Names(index_test=[["10.7.7.7"]])
    async with (
        host() as there,
        new_paths() as paths,
        open_world(names, paths, egress={"private": "never"}) as world,
        world.box(f"index.test:{there.port}") as box,
    ):
        refused = await box.shell(f"{CURL} http://index.test:{there.port}/")
    assert "This mesh lets no sandbox reach such addresses" in refused.stdout
    assert there.got == []
