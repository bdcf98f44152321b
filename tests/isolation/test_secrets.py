"""Secrets that never enter: the proxy puts them into requests, and nothing of a sandbox has them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from sandmesh.api.driver.v1 import driver_pb2 as pb
from tests.isolation.secret_world import (
    MESH_SECRET,
    PLACEHOLDER,
    VALUE,
    VARIABLE,
    change_value,
    secret_box,
    tls_host,
    write_authority,
)
from tests.isolation.world import World, new_paths, open_world
from tests.unit.drivers.egress.harness import Names

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = {"api_test": [["10.7.7.7"]], "other_test": [["10.7.7.7"]]}
AUTHORITY = trustme.CA()
CURL = "curl -sS --max-time 30"
SEND = f'-H "Authorization: Bearer ${VARIABLE}"'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with _world(tmp_path_factory.mktemp("authority")) as opened:
        yield opened


@asynccontextmanager
async def _world(folder: Path) -> AsyncGenerator[World]:
    egress = {"mesh_secret": MESH_SECRET, "ca_file": write_authority(AUTHORITY, folder)}
    async with new_paths() as paths, open_world(Names(**NAMES), paths, egress=egress) as opened:
        yield opened


@asynccontextmanager
async def _refusals(world: World) -> AsyncGenerator[asyncio.Queue[pb.EgressRefusal]]:
    heard: asyncio.Queue[pb.EgressRefusal] = asyncio.Queue()
    synced = asyncio.Event()

    async def watch() -> None:
        async for change in world.driver.watch_sandboxes(pb.WatchSandboxesRequest(mesh_id=world.mesh_id)):
            if change.HasField("egress_refusal"):
                heard.put_nowait(change.egress_refusal)
            elif change.synced:
                synced.set()

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(60):
            await synced.wait()
            yield heard
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_the_host_gets_the_value_and_the_sandbox_has_a_placeholder(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            done = await box.shell(f"{CURL} {SEND} -H 'X-Api-Key: {PLACEHOLDER}' -d @- https://{at}/v1 < /etc/hostname")
            assert done.exit_code == 0, done.stderr
            sent = host.headers()
            assert (sent["authorization"], sent["x-api-key"], sent["host"]) == (f"Bearer {VALUE}", VALUE, at)
            # The host repeats what it gets, and the sandbox sees asterisks in its place.
            assert f"authorization: Bearer {'*' * len(VALUE)}" in done.stdout
            assert VALUE not in done.stdout
            shown = await box.shell(f"printenv {VARIABLE}")
            assert shown.stdout.strip() == PLACEHOLDER


async def test_basic_authentication_and_several_requests_of_a_connection_get_the_value(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            done = await box.shell(
                f'{CURL} -o /dev/null -o /dev/null -u "me:${VARIABLE}" https://{at}/1 https://{at}/2'
            )
            assert done.exit_code == 0, done.stderr
            assert [request.target for request, _ in host.requests] == [b"/1", b"/2"]
            login = await box.shell(f"printf 'me:{VALUE}' | base64 -w0")
            assert host.headers()["authorization"] == f"Basic {login.stdout}"


async def test_large_bodies_and_chunked_ones_pass_both_ways(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            program = f"head -c 3000000 /dev/zero | {CURL} -T - {SEND} https://{at}/ | wc -c"
            done = await box.shell(program)
            assert int(done.stdout) > 3000000
            assert len(host.requests[0][1]) == 3000000
            assert host.headers()["authorization"] == f"Bearer {VALUE}"


async def test_pythons_and_nodes_usual_trust_is_the_bundle(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            program = f"""
import json, os, ssl, urllib.request
request = urllib.request.Request("https://{at}/", headers={{"X-Key": os.environ["{VARIABLE}"]}})
trusted = len(ssl.create_default_context().get_ca_certs())
print(json.dumps([urllib.request.urlopen(request, timeout=20).status, trusted]))
"""
            status, trusted = await box.json(program)
            assert status == 200
            # The system's own authorities are in it, too.
            assert trusted > 1
            assert host.headers()["x-key"] == VALUE


async def test_a_placeholder_for_another_host_is_refused_and_an_event(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test", "other.test") as host, _refusals(world) as heard:
        at, other = f"api.test:{host.port}", f"other.test:{host.port}"
        async with secret_box(world, [at], [at, other, "plain.test:80"]) as box:
            plain = await box.shell(f"{CURL} -w '%{{http_code}}' {SEND} http://plain.test/")
            assert plain.stdout.endswith("403")
            assert "the placeholder of the secret API_KEY was sent to plain.test:80" in plain.stdout
            refusal = await heard.get()
            assert (refusal.host, refusal.port) == ("plain.test", 80)
            # Inside of a tunnel whose bytes are not encrypted it is seen, too.
            tunnelled = await box.shell(f"{CURL} -p {SEND} http://{other}/")
            assert tunnelled.exit_code != 0
            assert (await heard.get()).host == "other.test"
            # What a program encrypts itself passes as it is: the other host gets the placeholder, never the value.
            passed = await box.shell(f"{CURL} -k {SEND} https://{other}/")
            assert passed.exit_code == 0, passed.stderr
            assert host.headers()["authorization"] == f"Bearer {PLACEHOLDER}"


async def test_a_program_that_pins_is_refused_by_its_own_alert_and_an_event(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host, _refusals(world) as heard:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            own = "/etc/ssl/certs/ca-certificates.crt"
            done = await box.shell(f"touch /tmp/none; {CURL} --cacert {own} {SEND} https://{at}/")
            assert done.exit_code == 60, done.stderr
            refusal = await heard.get()
            assert refusal.host == "api.test"
            assert "does not trust the certificate" in refusal.reason
            assert host.requests == []


async def test_a_host_that_does_not_prove_its_name_gets_nothing(world: World) -> None:
    async with tls_host(trustme.CA(), "api.test") as stranger, tls_host(AUTHORITY, "wrong.test") as misnamed:
        for host in (stranger, misnamed):
            at = f"api.test:{host.port}"
            async with secret_box(world, [at], [at]) as box:
                done = await box.shell(f"{CURL} -w '%{{http_code}}' {SEND} https://{at}/")
                assert done.stdout.endswith("502")
                assert "does not prove by TLS" in done.stdout
                assert host.requests == []


async def test_a_new_value_holds_for_the_next_request_and_one_taken_away_for_none(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            await change_value(world, box, [at], "sk-live-second-value")
            await box.shell(f"{CURL} {SEND} https://{at}/")
            assert host.headers()["authorization"] == "Bearer sk-live-second-value"
            await change_value(world, box, [at], "")
            done = await box.shell(f"{CURL} -w '%{{http_code}}' {SEND} https://{at}/")
            assert done.stdout.endswith("403")
            assert "has no value any more" in done.stdout
            assert len(host.requests) == 1


async def test_websockets_pass_once_the_host_agreed(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            program = f"""
import json, os, socket, ssl
raw = socket.create_connection(("127.0.0.1", 3128), 20)
raw.sendall(b"CONNECT {at} HTTP/1.1\\r\\nHost: {at}\\r\\n\\r\\n")
answer = b""
while not answer.endswith(b"\\r\\n\\r\\n"):
    answer += raw.recv(4096)
with ssl.create_default_context().wrap_socket(raw, server_hostname="api.test") as one:
    key = os.environ["{VARIABLE}"].encode()
    one.sendall(b"GET /live HTTP/1.1\\r\\nHost: x\\r\\nX-Key: " + key + b"\\r\\n"
                b"Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n")
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += one.recv(4096)
    one.sendall(b"frame")
    got = head.split(b"\\r\\n\\r\\n", 1)[1]
    while len(got) < 11:
        got += one.recv(4096)
    print(json.dumps([head.split()[1].decode(), got.decode()]))
"""
            assert await box.json(program) == ["101", "heard frame"]
            assert host.headers()["x-key"] == VALUE


async def test_a_program_that_speaks_only_http2_is_refused_by_name(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host, _refusals(world) as heard:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            both = await box.shell(f"{CURL} --http2 {SEND} -o /dev/null -w '%{{http_version}}' https://{at}/")
            assert both.stdout == "1.1"
            program = f"""
import json, socket, ssl
raw = socket.create_connection(("127.0.0.1", 3128), 20)
raw.sendall(b"CONNECT {at} HTTP/1.1\\r\\nHost: {at}\\r\\n\\r\\n")
answer = b""
while not answer.endswith(b"\\r\\n\\r\\n"):
    answer += raw.recv(4096)
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
with context.wrap_socket(raw, server_hostname="api.test") as one:
    one.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
    print(json.dumps([one.selected_alpn_protocol(), one.recv(4096)[:12].decode()]))
"""
            assert await box.json(program) == [None, "HTTP/1.1 403"]
            assert "spoke only HTTP/2" in (await heard.get()).reason


async def test_the_authority_is_trusted_for_the_secrets_hosts_alone(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            shown = await box.shell(
                "openssl crl2pkcs7 -nocrl -certfile $SSL_CERT_FILE | openssl pkcs7 -print_certs -noout | tail -3;"
                " tac $SSL_CERT_FILE | sed '/BEGIN/q' | tac | openssl x509 -noout -text"
            )
            assert "Name Constraints: critical" in shown.stdout
            assert "DNS:api.test" in shown.stdout
            assert "pathlen:0" in shown.stdout


async def test_a_driver_that_starts_again_keeps_secrets_and_their_last_values(tmp_path: Path) -> None:
    egress = {"mesh_secret": MESH_SECRET, "ca_file": write_authority(AUTHORITY, tmp_path)}
    async with tls_host(AUTHORITY, "api.test") as host, new_paths() as paths:
        at = f"api.test:{host.port}"
        async with open_world(Names(**NAMES), paths, egress=egress) as before:
            opened = secret_box(before, [at], [at])
            box = await opened.__aenter__()
            await change_value(before, box, [at], "sk-live-second-value")
        async with open_world(Names(**NAMES), paths, egress=egress) as after:
            await box.shell(f"{CURL} {SEND} https://{at}/")
            assert host.headers()["authorization"] == "Bearer sk-live-second-value"
            await after.remove(box.runtime.sandbox_id)
        assert list((paths.node_state / "secrets").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the memory of other users' processes")
async def test_no_process_file_or_record_of_a_sandbox_has_the_value(world: World) -> None:
    async with tls_host(AUTHORITY, "api.test") as host:
        at = f"api.test:{host.port}"
        async with secret_box(world, [at], [at]) as box:
            await box.cell("import os; kept = os.environ['API_KEY']")
            await box.shell(f"{CURL} {SEND} -d x https://{at}/ > /workspace/answer; sleep 1000 &")
            assert host.headers()["authorization"] == f"Bearer {VALUE}"
            found = await asyncio.to_thread(_search, box.runtime.sandbox_id, VALUE.encode())
            known = await asyncio.to_thread(_search, box.runtime.sandbox_id, PLACEHOLDER.encode())
            # The search finds what is there: the placeholder is in memory and environments.
            assert known > 1
            assert found == 0


def _search(sandbox_id: str, needle: bytes) -> int:
    """Count the memory maps, environments and files of a sandbox's processes that hold bytes."""
    pids = _processes(sandbox_id)
    assert len(pids) > 2
    return sum(_memory_with(pid, needle) + _environment_with(pid, needle) for pid in pids) + sum(
        _files_with(pid, needle) for pid in pids[:1]
    )


def _processes(sandbox_id: str) -> list[int]:
    """Return the processes that see the mounts of a sandbox."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sandbox_id in (path / "mountinfo").read_text():
                found.append(int(path.name))
    return found


def _memory_with(pid: int, needle: bytes) -> int:
    found = 0
    with suppress(OSError), Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            # Regions of the kernel's own cannot be read.
            with suppress(OSError, OverflowError, ValueError):
                memory.seek(first)
                found += needle in memory.read(last - first)
    return found


def _environment_with(pid: int, needle: bytes) -> int:
    with suppress(OSError):
        return needle in Path(f"/proc/{pid}/environ").read_bytes()
    return 0


def _files_with(pid: int, needle: bytes) -> int:
    found = 0
    for place in ("workspace", "tmp", "home", "run", "dev/shm"):
        for folder, _, names in os.walk(f"/proc/{pid}/root/{place}"):
            for name in names:
                path = Path(folder, name)
                with suppress(OSError):
                    found += path.is_file() and not path.is_symlink() and needle in path.read_bytes()
    return found
