"""Turns what users write into the mesh's messages, and its records into plain JSON. Nothing else converts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from google.protobuf.duration_pb2 import Duration

from sandmesh._client.secrets import write_secrets
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import Limits, NetworkGrant, Options, Snapshot
from sandmesh.shared.fork_lock import fork_lock
from sandmesh.shared.hosts import PACKAGES, normal_host

T = TypeVar("T")

_LONGEST_SECONDS = 315_576_000_000
"""What a Duration of protobuf holds: 10,000 years."""

_LONGEST_IMAGE = 1024

_WORDS: dict[int, Literal["none", "public", "hosts"]] = {
    sandbox_pb2.NETWORK_MODE_NONE: "none",
    sandbox_pb2.NETWORK_MODE_PUBLIC: "public",
    sandbox_pb2.NETWORK_MODE_HOSTS: "hosts",
}
_MODES = {
    "none": sandbox_pb2.NETWORK_MODE_NONE,
    "public": sandbox_pb2.NETWORK_MODE_PUBLIC,
    "hosts": sandbox_pb2.NETWORK_MODE_HOSTS,
}
EXPOSURE_KINDS: Mapping[int, str] = {
    0: "port",
    1: "devtools",
    2: "desktop",
    3: "desktop-readonly",
    4: "browser",
    5: "browser-readonly",
    6: "mobile",
    7: "mobile-readonly",
}
"""The words of port.proto's ExposureKind, which is imported only where ports are used."""
_KNOWN = frozenset(Options.__annotations__)


def _refuse(what: str, needs: str, value: object) -> InvalidArgument:
    return InvalidArgument(f"{what} {needs}, not {value!r}", {"argument": what})


def check_options(options: Options) -> None:
    """Refuse keywords that no constructor has, as Python does.

    Raises:
        TypeError: There is one.
    """
    for name in options:
        if name not in _KNOWN:
            raise TypeError(f"unexpected keyword argument {name!r}: there are {', '.join(sorted(_KNOWN))}")


def write_batch(options: Options) -> sandbox_pb2.Batch | None:
    """Return how a create of the priority "batch" waits; None for others.

    Raises:
        InvalidArgument: The priority is not one, or a share is out of range or without it.
    """
    priority, share = options.get("priority"), options.get("fair_share")
    if priority not in (None, "interactive", "batch"):
        raise _refuse("priority", "is 'interactive' or 'batch'", priority)
    if share is not None and (isinstance(share, bool) or not isinstance(share, int) or not 1 <= share <= 100):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise _refuse("fair_share", "is a whole number from 1 to 100", share)
    if priority != "batch":
        if share is not None:
            raise _refuse("fair_share", "is for the priority 'batch'", share)
        return None
    return sandbox_pb2.Batch(job=(options.get("labels") or {}).get("job", ""), share=share or 1)


def read_seconds(what: str, value: object) -> float:
    """Read a time span in seconds.

    Raises:
        InvalidArgument: It is not a number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST_SECONDS:
        raise _refuse(what, "is a number of seconds above 0, at most 315,576,000,000", value)
    return float(value)


def read_name(what: str, value: object) -> str:
    """Read a name of 1 to 255 characters.

    Raises:
        InvalidArgument: It is none.
    """
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise _refuse(what, "is a text of 1 to 255 characters", value)
    return str(value)


def write_ttl(ttl: float | None, what: str = "ttl") -> Duration | None:
    """Write a time to live, or another span of seconds."""
    if ttl is None:
        return None
    written = Duration()
    written.FromNanoseconds(int(read_seconds(what, ttl) * 1e9))
    return written


def write_on_idle(on_idle: object) -> sandbox_pb2.IdleAction.ValueType:
    """Write what is done with a sandbox that was not used for its idle time.

    Raises:
        InvalidArgument: It is neither None nor one of the actions.
    """
    if on_idle is None:
        return sandbox_pb2.IDLE_ACTION_UNSPECIFIED
    actions = {"release": sandbox_pb2.IDLE_ACTION_RELEASE, "pause": sandbox_pb2.IDLE_ACTION_PAUSE}
    if not isinstance(on_idle, str) or on_idle not in actions:
        raise _refuse("on_idle", "is 'release' or 'pause'", on_idle)
    return actions[on_idle]


def write_pause_mode(mode: object) -> sandbox_pb2.PauseMode.ValueType:
    """Write what a pause keeps.

    Raises:
        InvalidArgument: It is not one of the modes.
    """
    modes = {
        "memory": sandbox_pb2.PAUSE_MODE_MEMORY,
        "files": sandbox_pb2.PAUSE_MODE_FILES,
        "checkpoint": sandbox_pb2.PAUSE_MODE_CHECKPOINT,
    }
    if not isinstance(mode, str) or mode not in modes:
        raise _refuse("mode", "is 'memory', 'files' or 'checkpoint'", mode)
    return modes[mode]


def check_port(port: object) -> int:
    """Check that a number is a port's, and return it.

    Raises:
        InvalidArgument: It is none.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise _refuse("port", "is a whole number from 1 to 65535", port)
    return port


def write_spec(template: str, options: Options) -> sandbox_pb2.SandboxSpec:
    """Write what a sandbox is to be.

    Raises:
        InvalidArgument: A value does not fit; the message names it.
    """
    return sandbox_pb2.SandboxSpec(
        template=read_name("template", options.get("template") or template),
        environment=_read_texts("env", options.get("env"), _check_variable),
        labels=_read_texts("labels", options.get("labels"), _check_label),
        limits=_write_limits(options.get("limits")),
        network=write_network(options.get("network")),
        workspace_dir=_write_path("workspace_dir", options.get("workspace_dir")),
        volumes=_read_texts("volumes", options.get("volumes"), _check_volume),
        snapshot_id=_write_snapshot(options.get("snapshot")),
        secrets=write_secrets(options.get("secrets"), options.get("env")),
        image=_read_image(options.get("image")),
        root=_read_root(options.get("root")),
        browser_profile="" if options.get("profile") is None else read_name("profile", options.get("profile")),
    )


def _read_image(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value or len(value) > _LONGEST_IMAGE or not value.isprintable():
        raise _refuse("image", "is the name of an image, like python:3.12-slim, or an Image", value)
    return value


def _read_root(value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise _refuse("root", "is True, False or None", value)
    return value


def _write_path(what: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | Path) or not str(value):
        raise _refuse(what, "is the path of a directory", value)
    return str(Path.cwd() / value)


def _write_snapshot(value: object) -> str:
    if value is None:
        return ""
    return read_name("snapshot", value.snapshot_id if isinstance(value, Snapshot) else value)


def _read_texts(what: str, value: object, check: Callable[[str, str], str]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refuse(what, "is a mapping of texts to texts", value)
    texts = cast("Mapping[object, object]", value)
    for key, text in texts.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise _refuse(what, "is a mapping of texts to texts", {key: text})
        problem = check(key, text)
        if problem:
            raise InvalidArgument(f"{what}: {problem}", {"argument": what})
    return cast("dict[str, str]", dict(texts))


def _check_variable(name: str, value: str) -> str:
    if not name or "=" in name or "\0" in name + value:
        return f"{name!r} cannot be an environment variable: a name has no '=' and neither has a zero byte"
    return ""


def _check_label(key: str, value: str) -> str:
    if not 0 < len(key) <= 63 or len(value) > 255:
        return f"{key!r}: keys have 1 to 63 characters and values at most 255"
    return ""


def _check_volume(place: str, name: str) -> str:
    if not place.startswith("/") or not 0 < len(name) <= 128:
        return f"{place!r}: places are absolute paths, and names have 1 to 128 characters"
    return ""


def _from_mapping(what: str, kind: type[T], value: object) -> T:
    if isinstance(value, kind):
        return value
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # both kinds are dataclasses
    if not isinstance(value, Mapping):
        raise _refuse(what, f"is {kind.__name__} or a mapping of {', '.join(known)}", value)
    values = cast("Mapping[str, Any]", value)
    for name in values:
        if name not in known:
            raise _refuse(what, f"has {', '.join(known)}", name)
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidArgument(f"{what}: {error}", {"argument": what}) from None


def _write_limits(value: object) -> sandbox_pb2.Limits | None:
    if value is None:
        return None
    limits = _from_mapping("limits", Limits, value)
    return sandbox_pb2.Limits(
        memory_bytes=read_size("limits.memory", limits.memory),
        cpu_millis=max(1, round(_read_number("limits.cpus", limits.cpus, 2**22) * 1000))
        if limits.cpus is not None
        else 0,
        pids=_read_whole("limits.pids", limits.pids),
        file_bytes=read_size("limits.file_size", limits.file_size),
        disk_bytes=read_size("limits.disk", limits.disk),
    )


def read_size(what: str, value: int | str | None) -> int:
    """Read a size in bytes: a number or a text with a unit; 0 where it is None.

    Raises:
        InvalidArgument: It is neither.
    """
    if isinstance(value, str):
        with fork_lock:
            from pydantic import ByteSize, TypeAdapter, ValidationError  # noqa: PLC0415 - slow, and few state a size

        try:
            value = int(TypeAdapter(ByteSize).validate_python(value))
        except ValidationError:
            raise _refuse(what, 'is a number of bytes or a text like "512MiB" or "1.5 GB"', value) from None
    return _read_whole(what, value, 2**63)


def _read_whole(what: str, value: int | None, end: int = 2**32) -> int:
    if value is None:
        return 0
    if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise _refuse(what, "is a whole number", value)
    return int(_read_number(what, value, end))


def _read_number(what: str, value: float, end: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise _refuse(what, "is a number above 0", value)
    if not 0 < value < end:
        raise _refuse(what, f"is above 0 and below {end}", value)
    return value


def read_network(message: sandbox_pb2.NetworkGrant) -> NetworkGrant:
    """Read a grant that has a mode."""
    return NetworkGrant(_WORDS[message.mode], tuple(message.hosts), message.only_public)


def write_network(value: object) -> sandbox_pb2.NetworkGrant | None:
    """Write a grant; None stays None.

    Raises:
        InvalidArgument: It is none.
    """
    if value is None:
        return None
    grant = _from_mapping("network", NetworkGrant, _read_words(value))
    if grant.mode not in _MODES:
        raise _refuse("network", 'is "none", "public", "packages", a list of hosts or NetworkGrant', grant.mode)
    if (grant.mode == "hosts" and not grant.hosts) or (grant.mode == "none" and grant.hosts):
        raise _refuse("network", 'has hosts where the mode is "hosts", and none where it is "none"', grant)
    hosts = [normal_host(read_name("network.hosts", host)) for host in grant.hosts]
    return sandbox_pb2.NetworkGrant(mode=_MODES[grant.mode], hosts=hosts, only_public=grant.only_public)


def _read_words(value: object) -> object:
    if isinstance(value, str):
        return NetworkGrant("hosts", (value,)) if value == PACKAGES else NetworkGrant(value)  # type: ignore[arg-type]  # other words are refused later
    if not isinstance(value, Sequence):
        return value
    words = tuple(cast("Sequence[str]", value))
    rest = tuple(word for word in words if word not in {"none", "public"})
    if len(words) == 1 and not rest:
        return NetworkGrant(words[0])  # type: ignore[arg-type]  # it is one of the two
    if "none" in words:
        raise _refuse("network", 'is only "none", or what may be reached', words)
    return NetworkGrant("public" if "public" in words else "hosts", rest)


def read_record(record: sandbox_pb2.Sandbox) -> dict[str, Any]:
    """Return a sandbox's record as plain JSON."""
    with fork_lock:
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - its import is slow

    plain: dict[str, Any] = MessageToDict(record, preserving_proto_field_name=True)
    plain["state"] = read_state(record)
    plain["sandbox_type"] = record.spec.template
    network: dict[str, Any] | None = plain.get("spec", {}).get("network")
    if network and "mode" in network:
        network["mode"] = network["mode"].removeprefix("NETWORK_MODE_").lower()
    return plain


def read_event(event: sandbox_pb2.SandboxEvent) -> dict[str, str]:
    """Return something that happened to a sandbox as plain JSON."""
    with fork_lock:
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - its import is slow

    return dict(MessageToDict(event, preserving_proto_field_name=True))


def read_state(record: sandbox_pb2.Sandbox) -> str:
    """Return the name of a sandbox's state."""
    return sandbox_pb2.SandboxState.Name(record.state).removeprefix("SANDBOX_STATE_")


def read_tools(response: call_pb2.ListToolsResponse) -> dict[str, Any]:
    """Return tools by group and name, each with the schema that models are shown as a function."""
    groups: dict[str, Any] = {}
    for tool in response.tools:
        schema = {
            "name": tool.name,
            "description": tool.description,
            "parameters": json.loads(tool.input_schema_json or b"{}"),
        }
        entry: dict[str, Any] = {"name": tool.name, "json_schema": {"type": "function", "function": schema}}
        if tool.title:
            entry["title"] = tool.title
        for key, text in (("annotations", tool.annotations_json), ("output_schema", tool.output_schema_json)):
            if text:
                entry[key] = json.loads(text)
        groups.setdefault(tool.group, {})[tool.name] = entry
    return groups
