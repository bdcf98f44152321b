"""Files and ports: what the agent does in every sandbox, whatever its runtime."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.input_calls import Carried, carry
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.subject import Subject

_LARGE = 5 * 1024 * 1024 + 3
_SERVER = "python3 -u -m http.server --bind 127.0.0.1 8765 >server.log 2>&1 &"


def _done(carried: Carried, what: str) -> Carried:
    expect(not carried.result.is_error, f"{what} failed: {carried.result.message}")
    return carried


async def large_files_come_back_byte_by_byte(subject: Subject) -> None:
    """User code sees them, with their mode."""
    data = os.urandom(_LARGE)
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        _done(await carry(sandbox, "fs.write", {"path": "a/large", "mode": 0o600}, data), "writing")
        seen = await run(sandbox, "sha256sum < a/large; find a/large -printf %m")
        expect_equal(seen.stdout.split(), [hashlib.sha256(data).hexdigest(), "-", "600"], "what user code sees")
        back = _done(await carry(sandbox, "fs.read", {"path": "a/large"}), "reading")
        expect(back.data == data, "what was read is not what was written")
        tail = _done(await carry(sandbox, "fs.read", {"path": "a/large", "offset": _LARGE - 5}), "reading on")
        expect_equal(tail.data, data[-5:], "the bytes from an offset")


async def an_upload_that_is_cut_short_leaves_nothing(subject: Subject) -> None:
    """What was there stays, and no temporary file."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        _done(await carry(sandbox, "fs.write", {"path": "kept"}, b"before"), "writing")
        cut = await carry(sandbox, "fs.write", {"path": "kept", "size": 100}, b"less")
        expect_equal(cut.facts.get("errno"), errno.ECANCELED, "the result of too little input")
        seen = await run(sandbox, "cat kept; ls -A")
        expect_equal(seen.stdout, "beforekept\n", "what is there afterwards")


async def names_of_files_are_bytes(subject: Subject) -> None:
    """Those that are not UTF-8 or hold newlines survive."""
    name = b"\xff new\nline"
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        _done(await carry(sandbox, "fs.write", {"path": os.fsdecode(name)}, b"x"), "writing")
        listed = _done(await carry(sandbox, "fs.list", {}), "listing")
        found = [os.fsencode(json.loads(line)["path"]) for line in listed.data.splitlines()]
        expect_equal(found, [name], "the listed names")


async def calls_on_files_stay_in_the_workspace(subject: Subject) -> None:
    """Neither paths nor links lead out."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await run(sandbox, "ln -s /etc out; ln -s /etc/passwd file")
        for path in ("/etc/passwd", "../etc/passwd", "out/passwd", "file"):
            await _is_refused(sandbox, path)


async def _is_refused(sandbox: pb.RuntimeSandbox, path: str) -> None:
    for tool, data in (("fs.read", None), ("fs.stat", None), ("fs.write", b"x")):
        carried = await carry(sandbox, tool, {"path": path}, data)
        expect_equal(carried.facts.get("errno"), errno.EACCES, f"{tool} of {path}")


async def an_exposed_port_is_reached_until_it_is_revoked(subject: Subject) -> None:
    """The bytes of a connection are a call's input and output."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await run(sandbox, f"echo here > page; {_SERVER} until grep -q Serving server.log; do sleep 0.05; done")
        named = {"exposure_id": "one"}
        refused = await carry(sandbox, "ports.connect", named, b"")
        expect_equal(refused.facts.get("errno"), errno.ENOENT, "a connection to what is not exposed")
        arguments = {**named, "port": 8765, "expires": int(time.time()) + 600}
        _done(await carry(sandbox, "ports.expose", arguments), "exposing")
        answer = await carry(sandbox, "ports.connect", named, b"GET /page HTTP/1.0\r\n\r\n")
        expect(answer.data.endswith(b"here\n"), f"the server's answer is {answer.data!r}")
        _done(await carry(sandbox, "ports.revoke", named), "revoking")
        refused = await carry(sandbox, "ports.connect", named, b"")
        expect_equal(refused.facts.get("errno"), errno.ENOENT, "a connection to what was revoked")
