"""Jupyter's door: another's kernels, spellings of their ids, and messages that name another's session."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

import aiohttp

from tests.attacks.tally import Tally
from tests.attacks.target import Target, object_of

SECRET: Final = "the-variable-of-ada"  # noqa: S105 - what is looked for
_KERNELS: Final = "/jupyter/api/kernels"
_READERS: Final = ("a reader of ada's", "a reader")
"""Who may look at ada's kernel or at all, and change or use nothing."""
_POWERLESS: Final = ("bob", "bob's sandbox", "one whose token expired", "one whose token was revoked", "a stranger", "")
_VALUES: Final[tuple[Any, ...]] = (-1, 10**30, "²", "\0", "\ud800", "../../etc/passwd", [[]], {"a": {"a": 1}}, True)
_UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


async def reach(target: Target, tally: Tally) -> None:
    """Use a kernel of ada's by every route with every other key, and speak to it from another kernel."""
    adas = await _start(target, "ada")
    async with _channels(target, "ada", adas) as socket:
        tally.note("ada sets a variable", held="dead" not in await _run(socket, f"kept = {SECRET!r}"))
    await _use_anothers(target, tally, adas)
    await _spell(target, tally, adas)
    await _send_wrong_types(target, tally)
    await _name_anothers_session(target, tally, adas)
    async with _channels(target, "ada", adas) as socket:
        tally.note("ada's kernel has its variable", held=SECRET in await _run(socket, "print(kept)"))


async def _use_anothers(target: Target, tally: Tally, adas: str) -> None:
    routes = [("GET", ""), ("DELETE", ""), ("POST", "/interrupt"), ("POST", "/restart"), ("GET", "/channels")]
    for who in (*_POWERLESS, *_READERS):
        for method, path in routes:
            for shown in _ways(target.world.secrets.get(who, "")):
                headers = {**shown, **(_UPGRADE if path == "/channels" else {})}
                status, text = await target.get(f"{_KERNELS}/{adas}{path}", method=method, headers=headers)
                allowed = who in _READERS and (method, path) == ("GET", "") and status == 200
                held = SECRET not in text and (allowed or status in (401, 403, 404))
                tally.note(f"{who}: {method} {_KERNELS}/ID{path}: {status}", held=held)
    for who in _POWERLESS:
        _, text = await target.get(_KERNELS, headers=_shown(target, who))
        tally.note(f"{who}: GET {_KERNELS}", held=adas not in text)


def _ways(secret: str) -> list[dict[str, str]]:
    """Return the headers that show a key, as clients write it and as they do not."""
    places = (
        {"Authorization": f"token {secret}"},
        {"Authorization": f"Bearer {secret}"},
        {"Cookie": f"token={secret}"},
    )
    return list(places) if secret else [{}]


async def _spell(target: Target, tally: Tally, adas: str) -> None:
    spelt = (adas.upper(), adas.replace("-", ""), f"{{{adas}}}", f"%{ord(adas[0]):02x}{adas[1:]}", f"./{adas}")
    for name in (*spelt, f"x/../{adas}", f"{adas}%00", f"{adas}/", f"/{adas}", f"{adas}%2fchannels", "*", "%2e%2e"):
        for method in ("GET", "DELETE"):
            status, _ = await target.get(f"{_KERNELS}/{name}", method=method, headers=_shown(target, "bob"))
            tally.note(f"bob: {method} {_KERNELS}/{name}: {status}", held=400 <= status < 500)


async def _send_wrong_types(target: Target, tally: Tally) -> None:
    for value in _VALUES:
        for body in ({"name": value}, {"env": value}, {"env": {"X": value}}, {"env": {"SANDMESH_SESSION": value}}):
            headers = {**_shown(target, "bob"), "Content-Type": "application/json"}
            status, text = await target.get(_KERNELS, method="POST", headers=headers, data=json.dumps(body))
            tally.note(f"POST {_KERNELS} {str(body)!r:.60}: {status}", held=status < 500 or status == 503)
            if status == 201:
                made = object_of(text)["id"]
                await target.get(f"{_KERNELS}/{made}", method="DELETE", headers=_shown(target, "bob"))


async def _name_anothers_session(target: Target, tally: Tally, adas: str) -> None:
    """Send messages on bob's channels whose headers and contents name ada's kernel."""
    for kind in ("execute_request", "kernel_info_request", "comm_open", "comm_msg", "input_reply", "shutdown_request"):
        for channel in ("shell", "control", "stdin", "iopub", adas, "", 5):
            own = await _start(target, "bob")
            async with _channels(target, "bob", own) as socket:
                header = {"msg_id": adas, "msg_type": kind, "session": adas, "username": "ada"}
                message = {"channel": channel, "header": header, "parent_header": header, "metadata": {"kernel": adas}}
                await socket.send_json({**message, "content": {"code": "print(kept)", "comm_id": adas, "value": adas}})
                text = await _heard(socket)
                tally.note(f"{kind} on {channel!r}", held=SECRET not in text)
            await target.get(f"{_KERNELS}/{own}", method="DELETE", headers=_shown(target, "bob"))


def _shown(target: Target, who: str) -> dict[str, str]:
    secret = target.world.secrets.get(who, "")
    return {"Authorization": f"token {secret}"} if secret else {}


async def _start(target: Target, who: str) -> str:
    headers = {**_shown(target, who), "Content-Type": "application/json"}
    status, text = await target.get(_KERNELS, method="POST", headers=headers, data="{}")
    assert status == 201, text
    return str(object_of(text)["id"])


def _channels(target: Target, who: str, kernel: str) -> Any:
    url = f"{target.url}{_KERNELS}/{kernel}/channels"
    return target.http.ws_connect(url, headers=_shown(target, who))


async def _run(socket: aiohttp.ClientWebSocketResponse, code: str) -> str:
    """Run a cell and return all that came until it was done, or until the door closed the channels."""
    header = {"msg_id": "the-cell", "msg_type": "execute_request", "session": "s", "username": "u"}
    request = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": {"code": code}}
    found: list[str] = []
    try:
        await socket.send_json(request)
        while (message := await socket.receive(30)).type == aiohttp.WSMsgType.TEXT:
            found.append(message.data)
            seen = json.loads(message.data)
            over = seen.get("content", {}).get("execution_state") in ("idle", "dead")
            if over and seen["parent_header"].get("msg_id") == "the-cell":
                break
    except ConnectionError:
        found.append("dead")
    return "".join(found)


async def _heard(socket: aiohttp.ClientWebSocketResponse) -> str:
    """Return all that comes until it is silent for a moment, or the door closes the channels."""
    found: list[str] = []
    with suppress(TimeoutError, ConnectionError):
        while (message := await socket.receive(0.5)).type == aiohttp.WSMsgType.TEXT:
            found.append(message.data)
    return "".join(found)
