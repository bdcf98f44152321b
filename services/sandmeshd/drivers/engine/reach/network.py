"""The configuration and the files of a container whose agent is reached over a network."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.engine.container_config import AGENT_DIRECTORY, AGENT_ID, BUNDLE, STATE, TEMPLATE
from sandmeshd.drivers.engine.engine import TarFiles
from sandmeshd.drivers.engine.reach.links import AGENT_PORT, AgentAccess
from sandmeshd.drivers.node.agent_config import USER_ID
from sandmeshd.drivers.node.agent_files import TLS

OUR_DIRECTORY = str(PurePosixPath(AGENT_DIRECTORY).parent)
"""The volume for the agent's files, in a separate directory that user code cannot enter."""

TRUSTED = "/opt/sandmesh/trusted"
"""The volume for the CA certificates that the node trusts."""

_TRUST = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO")


def with_network(container: Mapping[str, Any], link: AgentAccess, name: str, port: int) -> dict[str, Any]:
    """Return a container's configuration with a network, and without any file of this machine.

    The container is on a network with its name; or, with a `port`, on the engine's bridge, published at that port.
    """
    host = dict(container["HostConfig"])
    options = {"Labels": _owner_labels(container)}
    mounts = [mount for mount in host["Mounts"] if mount["Type"] != "bind"]
    trusts = any(mount["Target"] == str(BUNDLE) for mount in host["Mounts"])
    places = [OUR_DIRECTORY, *([TRUSTED] if trusts else [])]
    mounts += [{"Type": "volume", "Target": place, "VolumeOptions": options} for place in places]
    host |= {
        "Mounts": mounts,
        "NetworkMode": "bridge" if link.mode == "port" else name,
        # The agent blocks user code from the network with it, and then drops it.
        "CapAdd": [*host["CapAdd"], "NET_ADMIN"],
        # The engine's own resolver would forward queries for the container: here it has no upstream.
        "Dns": ["127.0.0.1"],
    }
    if link.mode == "port":
        published = {"HostIp": link.address, "HostPort": str(port)}
        host["PortBindings"] = {f"{AGENT_PORT}/tcp": [published]}
    exposed: dict[str, Any] = {f"{AGENT_PORT}/tcp": {}}
    changed = {"HostConfig": host, "NetworkDisabled": False, "ExposedPorts": exposed}
    return {**container, **changed, "Cmd": ["--shut-in", f"{USER_ID},{AGENT_PORT}"]}


def network_config(container: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the configuration of a container's own network, which has no gateway."""
    return {"Name": name, "Internal": True, "Labels": _owner_labels(container), "CheckDuplicate": True}


def _owner_labels(container: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in container["Labels"].items() if name not in (TEMPLATE, STATE)}


def configure_listener(config: agent_pb2.AgentConfig, sandbox: pb.RuntimeSandbox) -> None:
    """Make an agent listen on the network, and point user code to the certificates; note in the record how."""
    config.listen, config.tls_file = f"tls://0.0.0.0:{AGENT_PORT}", f"{AGENT_DIRECTORY}/{TLS}"
    sandbox.enforced["network"] = sandbox.enforced["network"].replace("own namespace", "routing rule in its namespace")
    explicit = sandbox.spec.environment
    if not config.egress_port or not BUNDLE.exists():
        return
    redirected = [name for name, value in config.environment.items() if value == str(BUNDLE)]
    for name in {*redirected, *_TRUST} - explicit.keys():
        config.environment[name] = f"{TRUSTED}/{BUNDLE.name}"


def files_for(files: Mapping[str, bytes], *, trusts: bool) -> list[TarFiles]:
    """Return the archives of a container: the agent's directory with `files`, and the CA certificates if `trusts`."""
    folder = PurePosixPath(AGENT_DIRECTORY).name
    entries = [(_entry(f"{folder}/{name}", tarfile.REGTYPE, 0o600, AGENT_ID), data) for name, data in files.items()]
    own = TarFiles(OUR_DIRECTORY, _pack([(_entry(folder, tarfile.DIRTYPE, 0o700, AGENT_ID), b""), *entries]))
    if not (trusts and BUNDLE.exists()):
        return [own]
    bundle = _entry(BUNDLE.name, tarfile.REGTYPE, 0o644, 0)
    return [own, TarFiles(TRUSTED, _pack([(bundle, BUNDLE.read_bytes())]))]


def _pack(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def _entry(name: str, type_: bytes, mode: int, uid: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.uid, entry.gid = type_, mode, uid, uid
    return entry
