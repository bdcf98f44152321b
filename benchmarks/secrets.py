"""What a secret costs: the same HTTPS requests to one host by a plain tunnel, and where the proxy puts a value in.

`python -m benchmarks.secrets` prints medians and 95th percentiles of both, measured in turns inside of one sandbox, on
a connection that is kept and on a new one for each request.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import statistics
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme

from benchmarks.meshes import running_mesh
from sandmesh import BaseSandboxAsync, Secret

ROUNDS, KEPT, NEW = 10, 50, 10
VALUE = "sk-of-the-benchmark"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

PROGRAM = """
import http.client, json, os, ssl, time
unverified = ssl._create_unverified_context()
trusting = ssl.create_default_context()
key = {"Authorization": "Bearer " + os.environ["API_KEY"]}

def connected(port, context):
    made = http.client.HTTPSConnection("127.0.0.1", 3128, context=context, timeout=30)
    made.set_tunnel("127.0.0.1", port)
    return made

def ask(connection, headers):
    started = time.perf_counter()
    connection.request("GET", "/", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    answer.read()
    return time.perf_counter() - started

ways = {"tunnel": (PLAIN, unverified, {}), "secret": (SECRET, trusting, key)}
found = {way: {"kept": [], "new": []} for way in ways}
kept = {way: connected(port, context) for way, (port, context, _) in ways.items()}
for way, (_, _, headers) in ways.items():
    ask(kept[way], headers)
for _ in range(ROUNDS):
    for way, (port, context, headers) in ways.items():
        found[way]["kept"] += [ask(kept[way], headers) for _ in range(KEPT)]
        for _ in range(NEW):
            one = connected(port, context)
            found[way]["new"].append(ask(one, headers))
            one.close()
print(json.dumps(found))
"""


@asynccontextmanager
async def https_host(authority: trustme.CA) -> AsyncGenerator[int]:
    """Serve a short answer over TLS at a port of this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert("127.0.0.1")
    issued.configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def measure() -> Mapping[str, Mapping[str, list[float]]]:
    """Return the seconds of each request, by way and connection."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder, "authority.pem")
        authority.cert_pem.write_to_path(ca_file)
        async with (
            https_host(authority) as plain,
            https_host(authority) as secret,
            running_mesh(environment={"SANDMESH_EGRESS_CA_FILE": str(ca_file)}) as mesh,
        ):
            hosts = [f"127.0.0.1:{port}" for port in (plain, secret)]
            secrets = {"API_KEY": Secret(hosts=hosts[1:], value=VALUE)}
            async with BaseSandboxAsync(base_url=mesh.address, network=hosts, secrets=secrets) as box:
                values = {"PLAIN": plain, "SECRET": secret, "ROUNDS": ROUNDS, "KEPT": KEPT, "NEW": NEW}
                done = await box.run_ipython_cell("".join(f"{n} = {v}\n" for n, v in values.items()) + PROGRAM)
    found: Mapping[str, Mapping[str, list[float]]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the figures."""
    found = asyncio.run(measure())
    for connection, what in (("kept", "a request on a kept connection"), ("new", "a request on a new connection")):
        for way in ("tunnel", "secret"):
            seconds = found[way][connection]
            middle, high = statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]
            print(f"{what}, {way}: p50 {middle * 1000:.2f} ms, p95 {high * 1000:.2f} ms, of {len(seconds)}")
        added = statistics.median(found["secret"][connection]) - statistics.median(found["tunnel"][connection])
        print(f"{what}: added p50 {added * 1000:.2f} ms")


if __name__ == "__main__":
    main()
