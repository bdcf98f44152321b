"""The messages that E2B's clients send, field by field: what is used, refused, or without effect here.

A field that no table has is refused by its name: a client that sets it would take it for done. docs/door-fields.md has
these tables, made by a test that sends each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from aiohttp import web

from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.requests import json_object, whole_body

Kind: TypeAlias = type[str] | type[bool] | type[int] | type[dict[str, Any]] | type[list[Any]]
_WORDS: Final[Mapping[Kind, str]] = {str: "a string", bool: "true or false", dict: "an object", list: "a list"}


@dataclass(frozen=True)
class Message:
    """The fields of a message."""

    used: Mapping[str, Kind]
    """Fields that are used, and what each is in JSON; a number may be a string of digits."""

    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields whose use is refused, and what the mesh does not offer."""

    idle: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields that are accepted without effect, and why that is right."""

    inner: Mapping[str, Message] = field(default_factory=dict[str, "Message"])
    """The messages that fields of this one are."""

    def check(self, found: Mapping[str, Any], place: str = "") -> None:
        """Check the fields of a message; what is null or empty is as not sent.

        Raises:
            ApiError: One is refused, unknown here, or of another kind.
        """
        for name, value in found.items():
            self._check(name, value, place + name)

    def _check(self, name: str, value: object, place: str) -> None:
        kind = self.used.get(name)
        if kind is None:
            if value and name not in self.idle:
                missing = self.refused.get(name)
                what = f"this mesh does not offer {missing}" if missing else "this mesh has no such field"
                raise ApiError(400, f"{place}: {what}; leave it out")
        elif kind is not int and value is not None and not isinstance(value, kind):
            raise ApiError(400, f"{place} is {_WORDS[kind]}")
        inner = self.inner.get(name)
        if inner is not None and isinstance(value, dict):
            inner.check(cast("dict[str, Any]", value), f"{place}.")


async def read_fields(request: web.Request, message: Message) -> dict[str, Any]:
    """Read a body that is a message.

    Raises:
        ApiError: It is not, or `Message.check` refuses it.
    """
    found = json_object(await whole_body(request))
    message.check(found)
    return found


def check_query(request: web.Request, message: Message) -> None:
    """Check the parameters of a request's query.

    Raises:
        ApiError: `Message.check` refuses one.
    """
    message.check(request.query)


_RESOLVED: Final = "its own DNS servers: names are resolved outside of the sandbox"
_PROXY: Final = "its own proxy"
_RULES: Final = "rules that change requests"
NETWORK: Final = Message(
    {"allowPublicTraffic": bool, "allowOut": list, "denyOut": list},
    {
        "maskRequestHost": "another Host for requests to its ports",
        "dnsServers": _RESOLVED,
        "egressProxy": _PROXY,
        "httpsPorts": "ports that are served by TLS inside",
        "rules": _RULES,
    },
)
NETWORK_UPDATE: Final = Message(
    {"allowOut": list, "denyOut": list, "allow_internet_access": bool},
    {"dnsServers": _RESOLVED, "egressProxy": _PROXY, "rules": _RULES},
)
AUTO_RESUME: Final = Message({"enabled": bool})
MOUNT: Final = Message({"name": str, "path": str})
CREATE: Final = Message(
    {
        "templateID": str,
        "timeout": int,
        "autoPause": bool,
        "autoPauseMemory": bool,
        "autoResume": dict,
        "secure": bool,
        "allow_internet_access": bool,
        "network": dict,
        "metadata": dict,
        "envVars": dict,
        "mcp": dict,
        "volumeMounts": list,
    },
    {"iam": "tokens of cloud providers"},
    inner={"network": NETWORK, "autoResume": AUTO_RESUME},
)
CONNECT: Final = Message({"timeout": int, "memory": bool})
RESUME: Final = Message(
    {"timeout": int, "memory": bool}, {"autoPause": "another end of a sandbox's time than it was made with"}
)
PAUSE: Final = Message({"memory": bool, "requireHealthyGuest": bool})
TIMEOUT: Final = Message({"timeout": int})
REFRESH: Final = Message({"duration": int})
FORK: Final = Message({"timeout": int, "count": int})
SNAPSHOT: Final = Message({"name": str, "memory": bool})
LIST: Final = Message(
    {"metadata": str, "state": str, "order": str, "startedAfter": str, "template": str, "nextToken": str, "limit": int}
)
LOGS: Final = Message(
    {"limit": int, "direction": str, "level": str, "search": str},
    {"cursor": "logs by time: send `limit` for so many of the newest lines", "start": "logs by time: send `limit`"},
)
METRICS: Final = Message({"start": int, "end": int})
SEVERAL_METRICS: Final = Message({"sandbox_ids": str})
SNAPSHOTS: Final = Message({"sandboxID": str, "name": str, "limit": int, "nextToken": str})

_TEAMS: Final = "teams: a key is of one user, whose templates are listed"
BUILD_REQUEST: Final = Message(
    {"name": str, "alias": str, "tags": list, "cpuCount": int, "memoryMB": int},
    {"minFreeDiskMb": "disks that grow", "teamID": _TEAMS},
)
_CLOUD: Final = "logins of clouds' registries: use a user and a password"
REGISTRY: Final = Message(
    {"type": str, "username": str, "password": str},
    dict.fromkeys(("awsAccessKeyId", "awsSecretAccessKey", "awsRegion", "serviceAccountJson"), _CLOUD),
)
_CACHE: Final = "no step is cached: each build runs all of them"
STEP: Final = Message({"type": str, "args": list, "filesHash": str}, idle={"force": _CACHE})
BUILD: Final = Message(
    {
        "fromImage": str,
        "fromImageRegistry": dict,
        "fromTemplate": str,
        "steps": list,
        "startCmd": str,
        "readyCmd": str,
    },
    idle={"force": _CACHE},
    inner={"fromImageRegistry": REGISTRY},
)
BUILD_STATUS: Final = Message({"logsOffset": int, "limit": int}, {"level": "a build's log by level"})
TEMPLATES: Final = Message({"nextToken": int, "limit": int}, {"teamID": _TEAMS})
TEMPLATE: Final = Message({"nextToken": int, "limit": int})
ASSIGN_TAGS: Final = Message({"target": str, "tags": list})
REMOVE_TAGS: Final = Message({"name": str, "tags": list})
VOLUME: Final = Message({"name": str})
OWNERS: Final = Message({"uid": int, "gid": int, "mode": int})

SELECTOR: Final = Message({"pid": int, "tag": str})
_SELECTED: Final[Mapping[str, Message]] = {"process": SELECTOR}
SIZE: Final = Message({"cols": int, "rows": int})
PTY: Final = Message({"size": dict}, inner={"size": SIZE})
PROCESS: Final = Message({"cmd": str, "args": list, "envs": dict, "cwd": str})
INPUT: Final = Message({"stdin": str, "pty": str})
START: Final = Message(
    {"process": dict, "pty": dict, "tag": str, "stdin": bool}, inner={"process": PROCESS, "pty": PTY}
)
UPDATE: Final = Message({"process": dict, "pty": dict}, inner={"process": SELECTOR, "pty": PTY})
SEND_INPUT: Final = Message({"process": dict, "input": dict}, inner={"process": SELECTOR, "input": INPUT})
STREAM_START: Final = Message({"process": dict}, inner=_SELECTED)
STREAM_DATA: Final = Message({"input": dict}, inner={"input": INPUT})
STREAM_INPUT: Final = Message(
    {"start": dict, "data": dict},
    idle={"keepalive": "it only says that the client is there"},
    inner={"start": STREAM_START, "data": STREAM_DATA},
)
SIGNAL: Final = Message({"process": dict, "signal": str}, inner=_SELECTED)
SELECTED: Final = Message({"process": dict}, inner=_SELECTED)
NONE: Final = Message({})
PATH: Final = Message({"path": str})
MOVE: Final = Message({"source": str, "destination": str})
LIST_DIRECTORY: Final = Message({"path": str, "depth": int})
WATCH: Final = Message(
    {"path": str, "recursive": bool, "includeEntry": bool},
    idle={"allowNetworkMounts": "watches are below /home/user, which is watched wherever its files are kept"},
)
WATCHER: Final = Message({"watcherId": str})

EXECUTE: Final = Message({"code": str, "context_id": str, "language": str, "env_vars": dict})
CONTEXT: Final = Message({"language": str, "cwd": str})
