"""A container whose agent is reached over a network: what the engine is asked for, and the files that it is sent."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.engine.engine import Files
from sandmeshd.drivers.engine.links import AGENT_PORT, Link
from sandmeshd.drivers.engine.posture import AGENT_DIRECTORY, BUNDLE, STATE, TEMPLATE
from sandmeshd.drivers.engine.start import AGENT_ID
from sandmeshd.drivers.node.agent_config import USER_ID

OUR_DIRECTORY = str(PurePosixPath(AGENT_DIRECTORY).parent)
"""The volume that the engine is sent the agent's files for, in its own directory; user code cannot enter it."""

TRUSTED = "/opt/sandmesh/trusted"
"""The volume with the certificates that the node trusts."""

TLS = "tls"
_TRUST = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


def over_network(container: Mapping[str, Any], link: Link, name: str, port: int) -> dict[str, Any]:
    """Give the body of a create like one for a socket, with a network and without any file of this machine.

    The container is on a network of its name; or, with a `port`, on the engine's bridge, published there.
    """
    host = dict(container["HostConfig"])
    options = {"Labels": _owning(container)}
    mounts = [mount for mount in host["Mounts"] if mount["Type"] != "bind"]
    trusts = any(mount["Target"] == str(BUNDLE) for mount in host["Mounts"])
    places = [OUR_DIRECTORY, *([TRUSTED] if trusts else [])]
    mounts += [{"Type": "volume", "Target": place, "VolumeOptions": options} for place in places]
    host |= {
        "Mounts": mounts,
        "NetworkMode": "bridge" if link.way == "port" else name,
        # The agent keeps user code off the network with it, and gives it up.
        "CapAdd": [*host["CapAdd"], "NET_ADMIN"],
        # The engine's own resolver would ask others in the container's name: it finds nobody to ask.
        "Dns": ["127.0.0.1"],
    }
    if link.way == "port":
        published = {"HostIp": link.address, "HostPort": str(port)}
        host["PortBindings"] = {f"{AGENT_PORT}/tcp": [published]}
    exposed: dict[str, Any] = {f"{AGENT_PORT}/tcp": {}}
    changed = {"HostConfig": host, "NetworkDisabled": False, "ExposedPorts": exposed}
    return {**container, **changed, "Cmd": ["--shut-in", f"{USER_ID},{AGENT_PORT}"]}


def network_config(container: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Give the body of a create of a container's own network, which leads nowhere."""
    return {"Name": name, "Internal": True, "Labels": _owning(container), "CheckDuplicate": True}


def _owning(container: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in container["Labels"].items() if name not in (TEMPLATE, STATE)}


def tell_listening(config: agent_pb2.AgentConfig, sandbox: pb.RuntimeSandbox) -> None:
    """Have an agent listen to the network, and tell user code where certificates are; the record says what holds."""
    config.listen, config.tls_file = f"tls://0.0.0.0:{AGENT_PORT}", f"{AGENT_DIRECTORY}/{TLS}"
    sandbox.enforced["network"] = sandbox.enforced["network"].replace("own namespace", "routing rule in its namespace")
    stated = sandbox.spec.environment
    if not config.egress_port or not BUNDLE.exists():
        return
    moved = [name for name, value in config.environment.items() if value == str(BUNDLE)]
    for name in {*moved, *_TRUST} - stated.keys():
        config.environment[name] = f"{TRUSTED}/{BUNDLE.name}"


def files_for(files: Mapping[str, bytes], *, trusts: bool) -> list[Files]:
    """Give what a container is sent: the agent's directory with its files, by name; and whom the node trusts."""
    folder = PurePosixPath(AGENT_DIRECTORY).name
    entries = [(_entry(f"{folder}/{name}", tarfile.REGTYPE, 0o600, AGENT_ID), data) for name, data in files.items()]
    own = Files(OUR_DIRECTORY, _packed([(_entry(folder, tarfile.DIRTYPE, 0o700, AGENT_ID), b""), *entries]))
    if not (trusts and BUNDLE.exists()):
        return [own]
    shown = _entry(BUNDLE.name, tarfile.REGTYPE, 0o644, 0)
    return [own, Files(TRUSTED, _packed([(shown, BUNDLE.read_bytes())]))]


def _packed(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _entry(name: str, kind: bytes, mode: int, uid: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = kind, mode, uid, uid
    return entry
