"""How a sandbox is made for a client: its request checked, and written in the mesh's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web

from sandmesh.inputs import NetworkInput, Options
from sandmeshd.facades.e2b.builds.catalog import Origin
from sandmeshd.facades.e2b.control.templates import TEMPLATES
from sandmeshd.facades.e2b.envd.paths import inside
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.marks import Marks
from sandmeshd.facades.e2b.mcp.servers import VARIABLE, NamedServers, read_servers
from sandmeshd.facades.e2b.messages import MOUNT
from sandmeshd.facades.e2b.requests import natural, text, texts

LONGEST_SECONDS: Final = 30 * 86_400
_DEFAULT_SECONDS: Final = {"/v2/sandboxes": 300, "/sandboxes": 15}
_ALL: Final = frozenset({"0.0.0.0/0", "::/0", "*"})


@dataclass(frozen=True)
class Creation:
    """A sandbox to be made."""

    template: str
    marks: Marks
    options: Options
    seconds: int
    servers: NamedServers


def read_creation(request: web.Request, found: dict[str, Any], origin: Origin) -> Creation:
    """Read a request for a sandbox that starts from `origin`.

    Raises:
        ApiError: A value does not fit, or this mesh cannot do what it asks for.
    """
    name = text(found, "templateID") or "base"
    seconds = natural(found.get("timeout", _DEFAULT_SECONDS[request.path]), "timeout", LONGEST_SECONDS)
    auto_pause, auto_resume, memory = _read_lifecycle(found)
    servers, mounts = read_servers(found), _read_mounts(found)
    network = _object(found, "network")
    internet = found.get("allow_internet_access") is not False
    variables = (origin.build.environment if origin.build else {}) | texts(found, "envVars")
    if servers.names:
        variables |= {VARIABLE: ",".join(servers.names)}
    marks = Marks(
        template=name,
        metadata=texts(found, "metadata"),
        secure=_is_secure(request, found),
        public_traffic=network.get("allowPublicTraffic") is not False,
        internet=internet,
        auto_pause=auto_pause,
        auto_resume=auto_resume,
        variables=sorted(variables),
        volumes=mounts,
        mcp=servers.names,
        memory=memory,
        workdir=origin.build.workdir if origin.build else "",
        user=origin.build.user if origin.build else "",
    )
    options: Options = {
        "env": variables,
        "labels": marks.labels(),
        "ttl": marks.lease(max(1, seconds)),
        # This door resumes sandboxes itself, as their makers want it.
        "auto_resume": False,
    }
    grant = read_network(network, internet=internet)
    if grant is not None:
        options["network"] = grant
    if mounts:
        options["volumes"] = {inside(path): volume for path, volume in mounts.items()}
    if origin.snapshot_id:
        options["snapshot"] = origin.snapshot_id
    if origin.build is not None and origin.build.limits is not None:
        options["limits"] = origin.build.limits
    return Creation(origin.template, marks, options, seconds, servers)


def unknown_template(name: str, known: str) -> ApiError:
    """Return the refusal of a template that the mesh does not have; `known` are the names of those that it has."""
    names = ", ".join(sorted({*TEMPLATES, *filter(None, known.split(", "))}))
    return ApiError(404, f"template '{name}' not found: there are {names}, and those that were built with this key")


def read_network(network: dict[str, Any], *, internet: bool) -> NetworkInput | None:
    """Return the grant of a request's network; None is the template's own.

    Raises:
        ApiError: No grant says what it asks for.
    """
    allowed, denied = _hosts(network, "allowOut"), _hosts(network, "denyOut")
    if not internet or (denied and set(denied) <= _ALL):
        return list(allowed) or "none"
    if denied:
        raise ApiError(400, "network.denyOut: grants name what is allowed; deny 0.0.0.0/0 and list hosts in allowOut")
    # Without a denial everything public is allowed, and what is listed is among it.
    return ["public", *(host for host in allowed if host not in _ALL)] if allowed else None


def _is_secure(request: web.Request, found: dict[str, Any]) -> bool:
    # The newer route has no such field: its sandboxes always are.
    secure: object = found.get("secure")
    return request.path.startswith("/v2/") if secure is None else secure is True


def _read_lifecycle(found: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether a sandbox is paused when its time is over, goes on at a request, and keeps what runs meanwhile."""
    auto_pause, auto_resume = found.get("autoPause") is True, _object(found, "autoResume").get("enabled") is True
    memory = found.get("autoPauseMemory") is not False
    if auto_resume and not memory:
        raise ApiError(400, "autoResume: not with autoPauseMemory false, since nothing would run to answer the request")
    if auto_resume and not auto_pause:
        raise ApiError(400, "autoResume: only with autoPause, since nothing else pauses a sandbox by itself")
    return auto_pause, auto_resume, memory


def _read_mounts(found: dict[str, Any]) -> dict[str, str]:
    value: object = found.get("volumeMounts") or []
    mounts: dict[str, str] = {}
    for one in cast("list[object]", value) if isinstance(value, list) else [None]:
        mount = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        MOUNT.check(mount, "volumeMounts.")
        name, path = text(mount, "name"), text(mount, "path")
        if not name or not path.startswith("/"):
            raise ApiError(400, "volumeMounts is a list of objects with name and an absolute path")
        mounts[path] = name
    return mounts


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value: object = found.get(name) or {}
    if not isinstance(value, dict):
        raise ApiError(400, f"{name} is an object")
    return cast("dict[str, Any]", value)


def _hosts(network: dict[str, Any], name: str) -> list[str]:
    value: object = network.get(name) or []
    if not isinstance(value, list):
        raise ApiError(400, f"network.{name} is a list of hosts")
    hosts = cast("list[object]", value)
    if not all(isinstance(host, str) for host in hosts):
        raise ApiError(400, f"network.{name} is a list of hosts")
    return [str(host) for host in hosts]
