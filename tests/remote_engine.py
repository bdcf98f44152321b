"""An engine on another machine: in network and mount namespaces of its own, reached over TLS across a veth pair.

It has the address `address`, sees no file of the mesh's, and publishes ports on its own machine alone.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from tests.engine import Daemon, end_daemon, own_bridge, run

PORT = 2376
CLIENT = "/usr/bin/docker"
IMAGE = "sandmesh/base:latest"
HIDE = 'while [ "$1" != -- ]; do mkdir -p "$1" && mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'
LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listening", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class RemoteEngine:
    """The engine's URL for a driver, and `inside` for a test on its own machine."""

    url: str
    certificates: Path
    address: str
    inside: str
    namespace: str

    @contextmanager
    def occupied(self, port: int) -> Generator[None]:
        """Occupy a port of that machine by another program until the block ends."""
        command = [
            "nsenter",
            f"--net=/run/netns/{self.namespace}",
            sys.executable,
            "-c",
            LISTEN,
            self.address,
            str(port),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listening:
            if listening.stdout is None or listening.stdout.readline() != b"listening\n":
                raise RuntimeError(f"port {port} could not be occupied")
            yield
            listening.communicate()


@contextmanager
def remote_engine(folder: Path, source: str, hidden: Sequence[Path]) -> Generator[RemoteEngine]:
    """Run an engine with its data in a folder and the image of another engine; `hidden` is what it does not see."""
    certificates = folder / "certificates"
    certificates.mkdir()
    with ExitStack() as stack:
        namespace, address = stack.enter_context(_machine())
        _certify(certificates, address)
        daemon = _daemon(folder, namespace, address, hidden)
        stack.callback(end_daemon, daemon, folder)
        daemon.start()
        _load(source, daemon.url)
        yield RemoteEngine(f"tcp://{address}:{PORT}", certificates, address, daemon.url, namespace)


@contextmanager
def blind_engine(folder: Path, hidden: Sequence[Path]) -> Generator[str]:
    """Run an engine of this machine's network that does not see some of its files; yield its URL."""
    with ExitStack() as stack:
        bridge, _ = stack.enter_context(own_bridge())
        # An address of the loopback that nobody else has: there the port is free.
        url = f"tcp://127.{secrets.randbelow(250) + 2}.{secrets.randbelow(250) + 1}.1:2375"
        daemon = Daemon(folder, [*_blind(hidden), *_places(folder), "--bridge", bridge, "--host", url])
        stack.callback(end_daemon, daemon, folder)
        daemon.start()
        yield url


@contextmanager
def _machine() -> Generator[tuple[str, str]]:
    """Make a network namespace with a link to this one; yield its name, and its address on the link."""
    name, third = f"smt{secrets.token_hex(4)}", secrets.randbelow(250) + 1
    inside = ("ip", "-n", name)
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "address", "add", f"10.214.{third}.1/30", "dev", f"{name}o")
        run(*inside, "address", "add", f"10.214.{third}.2/30", "dev", "eth0")
        run("ip", "link", "set", f"{name}o", "up")
        for device in ("lo", "eth0"):
            run(*inside, "link", "set", device, "up")
        yield name, f"10.214.{third}.2"
    finally:
        run("ip", "netns", "delete", name)


def _daemon(folder: Path, namespace: str, address: str, hidden: Sequence[Path]) -> Daemon:
    tls = {"tlscacert": "ca", "tlscert": "server-cert", "tlskey": "server-key"}
    tls_options = [
        part for name, file in tls.items() for part in (f"--{name}", str(folder / "certificates" / f"{file}.pem"))
    ]
    entered = ["nsenter", f"--net=/run/netns/{namespace}", *_blind(hidden)]
    listening = ["--bip=10.215.0.1/16", "--host", f"tcp://{address}:{PORT}", "--tlsverify", *tls_options]
    return Daemon(folder, [*entered, *_places(folder), *listening])


def _blind(hidden: Sequence[Path]) -> list[str]:
    apart = ["unshare", "--mount", "--propagation", "private"]
    return [*apart, "sh", "-ec", HIDE, "sh", *map(str, hidden), "--"]


def _places(folder: Path) -> list[str]:
    (folder / "daemon.json").write_text("{}")
    files = {"data-root": "data", "exec-root": "exec", "pidfile": "pid", "config-file": "daemon.json"}
    places = [part for name, value in files.items() for part in (f"--{name}", str(folder / value))]
    # Its rules would need a machine's own tables; a published port is then served by the engine's proxy alone.
    return ["dockerd", *places, "--iptables=false", "--ip-forward=false", "--ip-masq=false"]


def _certify(folder: Path, address: str) -> None:
    authority: Any = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for prefix, name in (("", "client.example"), ("server-", address)):
        made = authority.issue_cert(name)
        made.cert_chain_pems[0].write_to_path(folder / f"{prefix}cert.pem")
        made.private_key_pem.write_to_path(folder / f"{prefix}key.pem")


def _load(source: str, target: str) -> None:
    with subprocess.Popen([CLIENT, "--host", source, "save", IMAGE], stdout=subprocess.PIPE) as saved:
        subprocess.run(
            [CLIENT, "--host", target, "load", "--quiet"], stdin=saved.stdout, check=True, capture_output=True
        )
