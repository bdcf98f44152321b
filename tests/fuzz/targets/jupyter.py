"""What Jupyter's clients send to the door, and what the cells of sandboxes show there."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final, cast

from sandmesh.events import ContentBlock, Output, Result
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.jupyter.kernels import read_request
from sandmeshd.facades.jupyter.messages import V1, MessageError, Outgoing, read_message
from sandmeshd.facades.jupyter.outputs import CellOutput
from tests.fuzz.mutation import TEXTS, mutated, text
from tests.fuzz.target import Fault, Target

from .wire import simple

_HEADER: Final = {"msg_id": "a", "msg_type": "execute_request", "session": "s"}

_NAMES: Final = (
    *("header", "content", "channel", "msg_type", "code", "annotations", "form", "continues", "text", "env"),
    *("name", "value", "traceback", "error"),
)


def _value(random: Random, depth: int = 0) -> Any:
    if depth < 3 and random.random() < 0.4:
        return {random.choice(_NAMES): _value(random, depth + 1) for _ in range(3)}
    return random.choice((None, True, 1, 1e308, text(random), random.choice(TEXTS), ["a"], "shell"))


def _frame(random: Random) -> bytes:
    """Return a byte that names the form, and a message in it that may be damaged."""
    form = random.choice(b"tvb")
    content = {"code": text(random), "cursor_pos": _value(random), "silent": _value(random)}
    if form == ord("v"):
        data = Outgoing(random.choice(("shell", "stdin", "x")), "execute_request", content, {}, "s").binary()
    else:
        fields = {"header": {**_HEADER, "msg_type": _value(random)}, "content": content, "channel": _value(random)}
        whole = {"channel": "shell", "header": _HEADER, "content": content}
        data = json.dumps(random.choice((fields, whole, _value(random)))).encode()
        if form == ord("b"):
            data = (1).to_bytes(4, "big") + (8).to_bytes(4, "big") + data
    return bytes([form]) + (data if random.random() < 0.4 else mutated(random, data))


def _take_frame(data: bytes) -> str:
    form, frame = data[:1], data[1:]
    try:
        read = read_message(frame.decode(errors="replace") if form == b"t" else frame, V1 if form == b"v" else None)
    except MessageError as error:
        if len(str(error).encode()) > 400:
            raise Fault("a reason is too long for a close frame") from None
        return "refused"
    if not isinstance(cast("object", read.text("code")), str) or not isinstance(cast("object", read.kind), str):
        raise Fault("a message has no texts")
    answer = Outgoing("shell", "a_reply", {"n": read.number("cursor_pos")}, read.header, "s")
    again = read_message(answer.binary(), V1), read_message(answer.text(), None)
    if [one.kind for one in again] != ["a_reply", "a_reply"]:
        raise Fault("a reply cannot be read")
    return "ok"


def _shown(random: Random) -> bytes:
    data = json.dumps([_value(random) for _ in range(random.randint(1, 4))]).encode()
    return data if random.random() < 0.8 else mutated(random, data)


def _take_shown(data: bytes) -> str:
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return "not JSON"
    items = cast("list[object]", found if isinstance(found, list) else [])
    output = CellOutput(1, ends_in_value=True)
    for block in [cast("dict[str, Any]", one) for one in items if isinstance(one, dict)]:
        ended = Result("EXITED", bool(block), 1, None, "m", {"error": block} if len(block) > 1 else block)
        for event in (ContentBlock(block, "d" if "text" in block else None), Output("stdout", b"x", "x"), ended):
            for kind, content in output.read(event):
                Outgoing("iopub", kind, content, {}, "s").text()
        try:
            read_request(block, "key", "owner", "base")
        except RequestError:
            continue
    return "ok"


TARGETS: Final = (
    Target("frames of Jupyter's clients", _frame, simple(_take_frame)),
    Target("what cells show to Jupyter's clients", _shown, simple(_take_shown)),
)
