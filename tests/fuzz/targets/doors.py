"""What clients of the doors send, and what labels and records of sandboxes hold."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument, Unauthenticated
from sandmesh.events import ContentBlock
from sandmesh.mesh.webhooks import new_secret, sign, verify
from sandmesh.shared.numbers import decimal
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.console.cells import CellRows
from sandmeshd.facades.console.terminal import read_size
from sandmeshd.facades.e2b.builds.catalog import Origin
from sandmeshd.facades.e2b.builds.plan import read_plan, read_resources
from sandmeshd.facades.e2b.control.creation import read_creation, read_network
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.marks import Marks, read_marks
from sandmeshd.facades.e2b.replies import result_of
from sandmeshd.facades.e2b.requests import json_object
from sandmeshd.facades.sandboxfusion import requests as sandboxfusion
from sandmeshd.facades.swerex import requests as swerex
from tests.fuzz.mutation import NUMBERS, TEXTS, mutated, text
from tests.fuzz.target import Fault, Target

from .wire import simple

_DIGITS: Final = ("²", "٣", "9" * 6000, "-1", "1_0", " 1", "0x1", "", "99999999999", "64", "65")
_DEEP: Final = ("[" * 5000, '{"a":' * 5000, "[" * 250, '"\\ud800"', "1e999", "9" * 6000)
_FIELDS: Final = (
    *("templateID", "timeout", "metadata", "envVars", "secure", "network", "autoPause", "autoResume", "volumeMounts"),
    *("mcp", "steps", "fromTemplate", "fromImage", "cpuCount", "memoryMB", "tags", "name", "startCmd", "iam"),
    *("allowOut", "denyOut", "allow_internet_access", "code", "language", "files", "fetch_files", "stdin", "cells"),
    *("run_timeout", "memory_limit_MB", "command", "session", "expect", "check", "action_type", "env", "cwd"),
)


def _value(random: Random, depth: int = 0) -> Any:
    kind = random.randrange(8 if depth < 3 else 5)
    if kind == 5:
        return [_value(random, depth + 1) for _ in range(random.randint(0, 3))]
    if kind > 5:
        return {random.choice((*_FIELDS, "a", "args", "type", "path")): _value(random, depth + 1) for _ in range(3)}
    return (None, random.random() < 0.5, random.choice(NUMBERS), text(random), random.choice(TEXTS))[kind]


def _body(random: Random) -> bytes:
    if random.random() < 0.1:
        return random.choice(_DEEP).encode()
    fields = {random.choice(_FIELDS): _value(random) for _ in range(random.randint(1, 6))}
    data = json.dumps(fields).encode()
    return data if random.random() < 0.7 else mutated(random, data)


def _labels(random: Random) -> bytes:
    marks = Marks("base", metadata={"a": text(random)[:100].encode(errors="replace").decode()}).labels()
    for _ in range(random.randint(0, 3)):
        name = random.choice(("e2b", *(f"e2b.{number}" for number in range(4))))
        marks[name] = random.choice((*_DIGITS, *_DEEP, text(random)))[:6000]
    return json.dumps(marks).encode()


def _take_labels(data: bytes) -> str:
    marks = read_marks(json.loads(data))
    if marks is not None:
        marks.lease(1.0)
        json.dumps(marks.metadata).encode()
    return "none" if marks is None else "ok"


def _record(random: Random) -> bytes:
    fields = {
        "id": "sb_a",
        "state": random.choice(("READY", "", "NOPE", "PAUSED")),
        "ports": random.choice(("", "1,2", "x", "²", "9" * 6000)),
        "created_us": random.choice(("0", "1700000000000000", *_DIGITS)),
        "token": random.choice(("1", *_DIGITS)),
        "idle_us": random.choice(("0", "5", *_DIGITS)),
        "holder": random.choice(("", "a")),
        "deadline_us": random.choice(("0", *_DIGITS)),
        "cost": text(random),
    }
    body = mutated(random, pb.Sandbox(spec=pb.SandboxSpec(template="base", labels={"a": "b"})).SerializeToString())
    return json.dumps(fields).encode() + b"\0" + body


def _take_record(data: bytes) -> str:
    head, _, body = data.partition(b"\0")
    fields = {name: value.encode() for name, value in json.loads(head).items()}
    shown = RecordState({**fields, "body": body}).sandbox()
    if shown.sandbox_id != "sb_a":
        raise Fault(f"a record lost its id: {shown.sandbox_id!r}")
    return shown.state_reason or "ok"


def _parsing(*parsers: Callable[[bytes], object]) -> Callable[[bytes], str]:
    def take(data: bytes) -> str:
        word = "ok"
        for parse in parsers:
            try:
                parse(data)
            except (ApiError, RequestError) as error:
                word = f"{error.status}"
        return word

    return take


def _create(data: bytes) -> object:
    request: Any = SimpleNamespace(path="/v2/sandboxes")
    return read_creation(request, json_object(data), Origin("base")).marks.labels()


def _swerex(data: bytes) -> None:
    for method in swerex.METHODS:
        try:
            swerex.read_request(method, data)
        except RequestError:
            continue


def _console(data: bytes) -> str:
    """Read what a page sends of a size, and a block that a sandbox wrote."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return "not JSON"
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {"text": found}
    size = read_size(fields)
    if size is not None and not all(0 < side <= 1_000 for side in size):
        raise Fault(f"a terminal of {size}")
    json.dumps(CellRows().of(ContentBlock(fields)))
    return "ok"


def _webhook(data: bytes) -> str:
    """Check a request that was not signed, and one that was signed with anything as its body."""
    secret, moment = new_secret(), int(time.time())
    words = data.decode(errors="replace")
    try:
        verify(secret, {"webhook-id": words, "webhook-timestamp": words, "webhook-signature": words}, data)
    except Unauthenticated:
        pass
    else:
        raise Fault("a request without a signature was taken")
    shown = {
        "webhook-id": words,
        "webhook-timestamp": str(moment),
        "webhook-signature": sign(secret, words, moment, data),
    }
    try:
        verify(secret, shown, data)
    except InvalidArgument:
        return "not an event"
    return "ok"


def _result(data: bytes) -> None:
    try:
        result_of(data, "it failed")
    except OSError:
        return


def _number(data: bytes) -> str:
    number = decimal(data.decode(errors="replace"), 1 << 31)
    if number is not None and not 0 <= number <= 1 << 31:
        raise Fault(f"{number} is out of range")
    return "ok" if number is not None else "none"


TARGETS: Final = (
    Target("labels of E2B's door", _labels, simple(_take_labels)),
    Target("stored records", _record, simple(_take_record)),
    Target(
        "requests of E2B's clients",
        _body,
        simple(
            _parsing(
                _create,
                lambda data: read_plan(json_object(data)),
                lambda data: read_resources(json_object(data)),
                lambda data: read_network(json_object(data), internet=True),
                _result,
            )
        ),
    ),
    Target(
        "requests of SWE-ReX's and SandboxFusion's clients",
        _body,
        simple(
            _parsing(
                _swerex,
                lambda data: sandboxfusion.read_request(sandboxfusion.RunCodeRequest, data),
                lambda data: sandboxfusion.read_request(sandboxfusion.RunJupyter, data),
            )
        ),
    ),
    Target("sizes and blocks of the console", _body, simple(_console)),
    Target("requests to receivers of webhooks", _body, simple(_webhook)),
    Target("numbers", lambda random: random.choice((*_DIGITS, text(random))).encode(errors="replace"), simple(_number)),
)
