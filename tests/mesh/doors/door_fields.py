"""What the doors do with each field of the requests that other systems' packages publish, as tables.

`python -m tests.mesh.doors.door_fields` writes them into docs/door-fields.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from sandmesh.mesh import MeshAsync
from sandmeshd.facades.e2b import messages
from sandmeshd.facades.e2b.messages import Message
from tests.mesh.conftest import run_mesh
from tests.mesh.doors.e2b.e2b_world import envelope, inside
from tests.mesh.doors.published_fields import PACKAGES, Types, published

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "door-fields.md"
UNKNOWN: Final = "noSuchField"
BAD: Final = {"bad": 1}
"""A value that no field has but those that are objects."""

_HEAD: Final = """# What the doors do with each field of a request

Made by `python -m tests.mesh.doors.door_fields`, which reads the types of requests out of the packages of other
systems' clients. A test sends every field of them, and compares this page with what the doors answer.

- **Used**: a value of another kind is refused with 400 or 422 and the field's name.
- **Refused**: any value is refused with 400 or 501, and the field's name or the route's.
- **Without effect**: accepted, for the reason below the table.
- Every other field is refused by its name, unless it is null, false, 0 or empty.
"""


@dataclass
class World:
    """A mesh with all doors."""

    url: str
    http: aiohttp.ClientSession
    key: str
    made: dict[str, Any] = field(default_factory=dict[str, Any])
    ids: dict[str, str] = field(default_factory=dict[str, str])

    async def send(self, method: str, path: str, headers: Mapping[str, str], **options: Any) -> tuple[int, str]:
        """Send a request; return its status and its text."""
        request = self.http.request(method, self.url + path, headers=headers, **options)
        async with asyncio.timeout(60), request as response:
            return response.status, (await response.read()).decode(errors="replace")


Send = Callable[[World, dict[str, Any]], Awaitable[tuple[int, str]]]
"""Sends a message with these fields."""


@dataclass(frozen=True)
class Row:
    """A type of the clients: how it is sent, and what is expected of its fields."""

    send: Send
    message: Message
    is_query: bool = False
    closed: bool = True
    """Whether fields that it does not have are refused."""


def _control(method: str, path: str, message: Message, wrap: Callable[[Any], Any] = lambda found: found) -> Row:
    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        place, headers = path.format_map(world.ids), {"X-API-KEY": world.key}
        return await world.send(method, place, headers, json=wrap(found))

    return Row(send, message)


def _query(path: str, message: Message) -> Row:
    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        return await world.send("GET", path.format_map(world.ids), {"X-API-KEY": world.key}, params=found)

    return Row(send, message, is_query=True)


def _inside(method: str, message: Message, wrap: Callable[[Any], Any] = lambda found: found) -> Row:
    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        stream = method.rpartition("/")[2] in ("Start", "Connect", "WatchDir", "StreamInput")
        headers = inside(world.made) | {"Content-Type": f"application/{'connect+json' if stream else 'json'}"}
        sent = wrap(found)
        data = envelope(sent) if stream else json.dumps(sent).encode()
        return await world.send("POST", method, headers, data=data)

    return Row(send, message)


def _interpreter(path: str, message: Message) -> Row:
    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        return await world.send("POST", path, inside(world.made, 49_999), json=found)

    return Row(send, message)


async def _send_owners(world: World, found: dict[str, Any]) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {world.ids['volume_token']}"}
    return await world.send("PATCH", f"/volumecontent/{world.ids['volume']}/path?path=/", headers, json=found)


_SANDBOX, _FILES, _PROCESS = "/sandboxes/{sandbox}", "/filesystem.Filesystem", "/process.Process"
_BUILD: Final = "/v2/templates/{template}/builds/{build}"
E2B: Final[Mapping[str, Row]] = {
    "NewSandbox": _control("POST", "/sandboxes", messages.CREATE),
    "NewSandboxV2": _control("POST", "/v2/sandboxes", messages.CREATE),
    "SandboxAutoResumeConfig": _control("POST", "/v2/sandboxes", messages.AUTO_RESUME, lambda one: {"autoResume": one}),
    "SandboxNetworkConfig": _control("POST", "/v2/sandboxes", messages.NETWORK, lambda one: {"network": one}),
    "SandboxVolumeMount": _control("POST", "/v2/sandboxes", messages.MOUNT, lambda one: {"volumeMounts": [one]}),
    "SandboxNetworkUpdateConfig": _control("PUT", f"{_SANDBOX}/network", messages.NETWORK_UPDATE),
    "ConnectSandbox": _control("POST", f"{_SANDBOX}/connect", messages.CONNECT),
    "ConnectSandboxV2": _control("POST", f"/v2{_SANDBOX}/connect", messages.CONNECT),
    "ResumedSandbox": _control("POST", f"{_SANDBOX}/resume", messages.RESUME),
    "SandboxPauseRequest": _control("POST", f"{_SANDBOX}/pause", messages.PAUSE),
    "SandboxTimeoutRequest": _control("POST", f"{_SANDBOX}/timeout", messages.TIMEOUT),
    "SandboxRefreshRequest": _control("POST", f"{_SANDBOX}/refreshes", messages.REFRESH),
    "SandboxForkRequest": _control("POST", f"{_SANDBOX}/fork", messages.FORK),
    "SandboxSnapshotRequest": _control("POST", f"{_SANDBOX}/snapshots", messages.SNAPSHOT),
    "get_v2_sandboxes": _query("/v2/sandboxes", messages.LIST),
    "get_sandboxes": _query("/sandboxes", messages.LIST),
    "get_sandboxes_metrics": _query("/sandboxes/metrics", messages.SEVERAL_METRICS),
    "get_sandboxes_sandbox_id_metrics": _query(f"{_SANDBOX}/metrics", messages.METRICS),
    "get_sandboxes_sandbox_id_logs": _query(f"{_SANDBOX}/logs", messages.LOGS),
    "get_v_2_sandboxes_sandbox_id_logs": _query(f"/v2{_SANDBOX}/logs", messages.LOGS),
    "get_snapshots": _query("/snapshots", messages.SNAPSHOTS),
    "TemplateBuildRequestV3": _control(
        "POST", "/v3/templates", messages.BUILD_REQUEST, lambda one: {"name": "fields", **one}
    ),
    "TemplateBuildStartV2": _control("POST", "/v2/templates/{template}/builds/none", messages.BUILD),
    "TemplateStep": _control(
        "POST", _BUILD, messages.STEP, lambda one: {"steps": [{"type": "RUN", "args": ["true"], **one}]}
    ),
    **dict.fromkeys(
        ("AWSRegistry", "GCPRegistry", "GeneralRegistry"),
        _control("POST", _BUILD, messages.REGISTRY, lambda one: {"fromImage": "debian", "fromImageRegistry": one}),
    ),
    "get_templates_template_id_builds_build_id_status": _query(
        "/templates/{template}/builds/{build}/status", messages.BUILD_STATUS
    ),
    "get_templates": _query("/templates", messages.TEMPLATES),
    "get_v2_templates": _query("/v2/templates", messages.TEMPLATES),
    "get_templates_template_id": _query("/templates/{template}", messages.TEMPLATE),
    "AssignTemplateTagsRequest": _control("POST", "/templates/tags", messages.ASSIGN_TAGS),
    "DeleteTemplateTagsRequest": _control("DELETE", "/templates/tags", messages.REMOVE_TAGS),
    "NewVolume": _control("POST", "/volumes", messages.VOLUME),
    "PatchVolumecontentVolumeIDPathBody": Row(_send_owners, messages.OWNERS),
    "StartRequest": _inside(f"{_PROCESS}/Start", messages.START),
    "ProcessConfig": _inside(f"{_PROCESS}/Start", messages.PROCESS, lambda one: {"process": one}),
    "PTY": _inside(f"{_PROCESS}/Start", messages.PTY, lambda one: {"process": {"cmd": "true"}, "pty": one}),
    "Size": _inside(f"{_PROCESS}/Start", messages.SIZE, lambda one: {"process": {"cmd": "true"}, "pty": {"size": one}}),
    "ConnectRequest": _inside(f"{_PROCESS}/Connect", messages.SELECTED),
    "ProcessSelector": _inside(f"{_PROCESS}/Connect", messages.SELECTOR, lambda one: {"process": one}),
    "UpdateRequest": _inside(f"{_PROCESS}/Update", messages.UPDATE),
    "SendInputRequest": _inside(f"{_PROCESS}/SendInput", messages.SEND_INPUT),
    "ProcessInput": _inside(f"{_PROCESS}/SendInput", messages.INPUT, lambda one: {"input": one}),
    "StreamInputRequest": _inside(f"{_PROCESS}/StreamInput", messages.STREAM_INPUT),
    "StartEvent": _inside(f"{_PROCESS}/StreamInput", messages.STREAM_START, lambda one: {"start": one}),
    "DataEvent": _inside(f"{_PROCESS}/StreamInput", messages.STREAM_DATA, lambda one: {"data": one}),
    "SendSignalRequest": _inside(f"{_PROCESS}/SendSignal", messages.SIGNAL),
    "CloseStdinRequest": _inside(f"{_PROCESS}/CloseStdin", messages.SELECTED),
    "StatRequest": _inside(f"{_FILES}/Stat", messages.PATH),
    "MakeDirRequest": _inside(f"{_FILES}/MakeDir", messages.PATH),
    "RemoveRequest": _inside(f"{_FILES}/Remove", messages.PATH),
    "MoveRequest": _inside(f"{_FILES}/Move", messages.MOVE),
    "ListDirRequest": _inside(f"{_FILES}/ListDir", messages.LIST_DIRECTORY),
    "WatchDirRequest": _inside(f"{_FILES}/WatchDir", messages.WATCH, lambda one: {"path": "nowhere", **one}),
    "CreateWatcherRequest": _inside(f"{_FILES}/CreateWatcher", messages.WATCH),
    "GetWatcherEventsRequest": _inside(f"{_FILES}/GetWatcherEvents", messages.WATCHER),
    "RemoveWatcherRequest": _inside(f"{_FILES}/RemoveWatcher", messages.WATCHER),
    "execute": _interpreter("/execute", messages.EXECUTE),
    "contexts": _interpreter("/contexts", messages.CONTEXT),
}
"""The last two have no published type: their fields are those that the code interpreter's client writes."""


def _agentscope(method: str, fields: list[str]) -> Row:
    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        return await world.send("POST", f"/{method}", {"Authorization": f"Bearer {world.key}"}, json=found)

    kinds: dict[str, messages.Kind] = {
        one: dict if one in ("meta", "environment", "arguments", "server_configs") else str for one in fields
    }
    where = "places of the client's machine"
    places: dict[str, str] = {"mount_dir": where, "storage_path": where}
    return Row(send, Message({one: kind for one, kind in kinds.items() if one not in places}, places))


_SWEREX: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "CreateBashSessionRequest": ("create_session", {}),
    "BashAction": ("run_in_session", {"action_type": "bash", "command": "true"}),
    "BashInterruptAction": ("run_in_session", {"action_type": "bash_interrupt"}),
    "CloseBashSessionRequest": ("close_session", {}),
    "Command": ("execute", {"command": "true"}),
    "ReadFileRequest": ("read_file", {"path": "x"}),
    "WriteFileRequest": ("write_file", {"path": "x", "content": ""}),
}


def _swerex(kind: str, fields: list[str]) -> Row:
    if kind == "UploadRequest":

        async def upload(world: World, found: dict[str, Any]) -> tuple[int, str]:
            form = aiohttp.FormData({name: "" if value == BAD else "x" for name, value in found.items()})
            form.add_field("file", b"x", filename="x")
            return await world.send("POST", "/swerex/fields/upload", {"X-API-Key": world.key}, data=form)

        local = {"source_path": "it names a file of the client, which sends its content"}
        return Row(upload, Message({"target_path": str}, idle=local), closed=False)
    method, least = _SWEREX[kind]

    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        return await world.send("POST", f"/swerex/fields/{method}", {"X-API-Key": world.key}, json={**least, **found})

    return Row(send, Message({one: dict if one == "env" else str for one in fields}))


def _sandboxfusion(kind: str, fields: list[str]) -> Row:
    path, least = {"RunCodeRequest": ("/run_code", {"code": "", "language": "bash"})}.get(
        kind, ("/run_jupyter", {"cells": [""]})
    )

    async def send(world: World, found: dict[str, Any]) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {world.key}"}
        return await world.send("POST", path, headers, json={**least, **found})

    return Row(send, Message({one: dict if one == "files" else str for one in fields}))


ABSENT: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "e2b": {
        "NewSecret": ("POST", "/secrets"),
        "SecretUpdate": ("POST", "/secrets/x"),
        "get_secrets": ("GET", "/secrets"),
        "TemplateUpdateRequest": ("PATCH", "/v2/templates/x"),
        "get_templates_template_id_builds_build_id_logs": ("GET", "/templates/x/builds/x/logs"),
        "get_templates_template_id_tags_groups": ("GET", "/templates/x/tags/groups"),
        "get_templates_template_id_tags_exists": ("GET", "/templates/x/tags/exists"),
        "get_templates_template_id_tags_tag_assignments": ("GET", "/templates/x/tags/x/assignments"),
    },
    "sandboxfusion": {
        "GetPromptsRequest": ("POST", "/get_prompts"),
        "GetPromptByIdRequest": ("POST", "/get_prompt_by_id"),
        "SubmitRequest": ("POST", "/submit"),
        "GetMetricsRequest": ("POST", "/get_metrics"),
        "GetMetricsFunctionRequest": ("POST", "/get_metrics_function"),
    },
}
"""Types whose routes a door does not offer: it answers 501."""

PARTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("SandboxIam", "SandboxIamToken"), "`iam` of NewSandboxV2"),
    **dict.fromkeys(
        ("SandboxEgressProxyConfigType0", "SandboxEgressProxyTLSConfigType0"), "`egressProxy` of SandboxNetworkConfig"
    ),
    **dict.fromkeys(("SandboxNetworkRule", "SandboxNetworkTransform"), "`rules` of SandboxNetworkConfig"),
}
"""Types that are parts of a refused field."""

ANSWERS: Final = frozenset(
    {
        "TemplateTagGroupsResponse",
        "TemplateBuildInfo",
        "TemplateWithBuilds",
        "SandboxLog",
        "BuildStatusReason",
        "TemplateTagGroup",
        "SandboxesWithMetrics",
        "TemplateTag",
        "TemplateBuildFileUpload",
        "TemplateBuild",
        "SandboxLifecycle",
        "TemplateTagAssignment",
        "Error",
        "AssignedTemplateTags",
        "BuildLogEntry",
        "Volume",
        "TemplateAliasResponse",
        "TemplateUpdateResponse",
        "SandboxDetail",
        "TemplateTagExistsResponse",
        "TemplateTagsCountResponse",
        "SandboxLogEntry",
        "Secret",
        "SnapshotInfo",
        "SandboxLogsV2Response",
        "VolumeAndToken",
        "ListedSandbox",
        "TemplateBuildLogsResponse",
        "SandboxLogs",
        "SandboxMetric",
        "TeamUser",
        "Sandbox",
        "SandboxForkResult",
        "TemplateTagAssignmentsResponse",
        "Template",
        "TemplateRequestResponseV3",
        "ProcessInfo",
        "ListResponse",
        "ProcessEvent",
        "EndEvent",
        "StartResponse",
        "ConnectResponse",
        "MoveResponse",
        "MakeDirResponse",
        "StatResponse",
        "EntryInfo",
        "ListDirResponse",
        "FilesystemEvent",
        "WatchDirResponse",
        "CreateWatcherResponse",
        "GetWatcherEventsResponse",
        "BashObservation",
        "_ExceptionTransfer",
    }
)
"""Types that the doors send."""


def rows(door: str, types: Types) -> dict[str, Row]:
    """Return how each type of a door is sent."""
    if door == "e2b":
        return dict(E2B)
    make = {"agentscope": _agentscope, "swerex": _swerex, "sandboxfusion": _sandboxfusion}[door]
    absent = ABSENT.get(door, {})
    return {name: make(name, fields) for name, fields in types.items() if name not in ANSWERS and name not in absent}


@asynccontextmanager
async def open_world() -> AsyncGenerator[World]:
    """Run a mesh with all doors, a sandbox, a template to be built and a volume."""
    doors = {"e2b": True, "agentscope": True, "swerex": True, "sandboxfusion": True, "sandboxfusion_template": "base"}
    async with run_mesh(**doors) as mesh, aiohttp.ClientSession() as http, MeshAsync(mesh.addresses[0]) as client:
        world = World(mesh.http.addresses[0], http, (await client.tokens.create("ada", form="e2b")).secret)
        headers = {"X-API-KEY": world.key}

        async def make(path: str, **values: Any) -> dict[str, Any]:
            status, text = await world.send("POST", path, headers, json=values)
            assert status in (201, 202), text
            return dict(json.loads(text))

        world.made = await make("/v2/sandboxes", timeout=900)
        build, volume = await make("/v3/templates", name="fields"), await make("/volumes", name="fields")
        world.ids |= {"sandbox": world.made["sandboxID"], "template": build["templateID"], "build": build["buildID"]}
        world.ids |= {"volume": volume["volumeID"], "volume_token": volume["token"]}
        yield world


def _cell(names: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "-"


def page(types: Mapping[str, Types]) -> str:
    """Return the page."""
    lines = [_HEAD]
    for door, found in types.items():
        lines += [f"## {door}", "", f"Of {' and '.join(one.replace('==', ' ') for one in PACKAGES[door])}.", ""]
        lines += ["| type or route | used | refused | without effect |", "| --- | --- | --- | --- |"]
        idle: dict[str, str] = {}
        for name, row in sorted(rows(door, found).items(), key=lambda one: one[0].lower()):
            # Events of the answers have the names of two that are sent.
            fields = (
                [*row.message.used] if name in ("StartEvent", "DataEvent") else found.get(name, [*row.message.used])
            )
            used, refused, without = (
                {one: row.message for one in fields if one in part}
                for part in (row.message.used, row.message.refused, row.message.idle)
            )
            idle |= {one: row.message.idle[one] for one in without}
            lines.append(f"| {name.lstrip('_')} | {_cell(used)} | {_cell(refused)} | {_cell(without)} |")
        lines += [f"| {name} | - | all: `{method} {path}` is 501 | - |" for name, (method, path) in _absent(door)]
        lines += [
            f"| {name} | - | all: it is a part of {where} | - |" for name, where in PARTS.items() if name in found
        ]
        lines += ["", *(f"- `{name}` is without effect: {why}." for name, why in idle.items()), *([""] if idle else [])]
    return "\n".join(lines).rstrip() + "\n"


def _absent(door: str) -> list[tuple[str, tuple[str, str]]]:
    return list(ABSENT.get(door, {}).items())


def main() -> None:
    """Write the page."""
    PAGE.write_text(page({door: published(door) for door in PACKAGES}))


if __name__ == "__main__":
    main()
