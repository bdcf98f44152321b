"""Template definitions, from classes registered in Python and from files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict, cast

from sandmesh._client.messages import read_name, write_on_idle, write_spec, write_ttl
from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import NetworkInput
from sandmesh.templates.environments import write_environments

LEVELS = ("low", "medium", "high")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")

# As Docker and Kubernetes write sizes; both count in 1024s.
_SHORT_SIZE = re.compile(r"\s*([0-9.]+)\s*([kmgtKMGT])i?\s*")
_SAME = {"cpu": "cpus", "memory": "memory", "mem_limit": "memory", "pids_limit": "pids"}


class DefinitionFields(TypedDict, total=False):
    """The fields of a template definition; each is enforced, or its sandboxes are refused."""

    name: Required[str]
    description: str
    extends: str
    image: str
    limits: Mapping[str, Any] | None
    security_level: str
    timeout: float | None
    environment: Mapping[str, str] | None
    network: NetworkInput | None
    runtime_config: Mapping[str, Any] | None
    mcp_config: Mapping[str, Any] | None
    system: Sequence[str] | None
    requirements: Sequence[str] | None
    environments: Mapping[str, Any] | None
    scratch: Sequence[str] | None
    root: bool | None
    idle_timeout: float | None
    on_idle: str | None


def write_definition(fields: DefinitionFields, tools: Sequence[pb.ToolDefinition] = ()) -> pb.TemplateDefinition:
    """Build a definition.

    Raises:
        InvalidArgument: A value does not fit; the message names it.
    """
    name = check_type(fields.get("name"))
    limits, rest = _split(fields.get("limits"), fields.get("runtime_config"))
    spec = write_spec(
        name, {"limits": limits or None, "network": fields.get("network"), "env": fields.get("environment")}
    )
    return pb.TemplateDefinition(
        name=name,
        description=_text("description", fields.get("description", "")),
        extends=_text("extends", fields.get("extends", "")),
        image=_text("image", fields.get("image", "")),
        limits=spec.limits if limits else None,
        security_level=_level(fields.get("security_level", "medium")),
        call_timeout=write_ttl(fields.get("timeout"), "timeout"),
        environment=spec.environment,
        network=spec.network if spec.HasField("network") else None,
        runtime_config=rest,
        tools=tools,
        mcp_config_json=_servers(fields.get("mcp_config")),
        system=_names("system", "names of Debian packages", fields.get("system")),
        requirements=_names("requirements", "names of Python packages", fields.get("requirements")),
        environments=write_environments(fields.get("environments")),
        scratch=_names("scratch", "directories", fields.get("scratch")),
        root=_flag("root", fields.get("root")),
        idle_timeout=write_ttl(fields.get("idle_timeout"), "idle_timeout"),
        on_idle=write_on_idle(fields.get("on_idle")),
    )


def _flag(what: str, value: object) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgument(f"{what} must be true or false, not {value!r}", {"argument": what})
    return value


def _names(what: str, kind: str, names: object) -> Sequence[str]:
    found = cast("Sequence[object]", [] if names is None else names)
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        message = f"{what} must be a list of {kind}, not {names!r}"
        raise InvalidArgument(message, {"argument": what})
    return cast("Sequence[str]", found)


def check_type(name: object) -> str:
    """Check the name of a sandbox type.

    Raises:
        InvalidArgument: It is not one.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        rule = "a letter, then letters in lower case, digits, _ and -, at most 63 in all"
        raise InvalidArgument(f"a sandbox's type must be {rule}, not {name!r}", {"argument": "sandbox_type"})
    return str(name)


def _level(level: object) -> str:
    if level not in LEVELS:
        message = f"security_level must be one of {', '.join(LEVELS)}, not {level!r}"
        raise InvalidArgument(message, {"argument": "security_level"})
    return str(level)


def _text(what: str, value: object) -> str:
    return read_name(what, value) if value else ""


def _split(limits: object, runtime_config: object) -> tuple[dict[str, Any], dict[str, str]]:
    """Return all limits under their canonical names, and the settings of single runtimes as JSON."""
    found: dict[str, Any] = {}
    rest: dict[str, str] = {}
    for name, value in _mapping("resource_limits", limits).items():
        found[_SAME.get(name, name)] = _amount(name, value)
    for name, value in _mapping("runtime_config", runtime_config).items():
        if name == "nano_cpus":
            found.setdefault("cpus", float(value) / 1e9)
        elif name in _SAME:
            found.setdefault(_SAME[name], _amount(name, value))
        else:
            rest[name] = _json(f"runtime_config[{name!r}]", value)
    return {name: value for name, value in found.items() if value is not None}, rest


def _mapping(what: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what} must be a mapping of names to values, not {value!r}", {"argument": what})
    return dict(cast("Mapping[str, Any]", value))


def _amount(name: str, value: object) -> object:
    if name in ("cpu", "cpus") and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise InvalidArgument(f"{name} must be a number of cores, not {value!r}", {"argument": name}) from None
    short = _SHORT_SIZE.fullmatch(value) if isinstance(value, str) else None
    return f"{short[1]}{short[2].upper()}iB" if short else value


def _servers(config: object) -> bytes:
    return _json("mcp_config", _mapping("mcp_config", config)).encode() if config is not None else b""


def _json(what: str, value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{what} cannot be encoded as JSON: {error}") from None
