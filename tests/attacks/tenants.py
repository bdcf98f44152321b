"""What tenants try by RPC: others' things, ended tokens, a pool's next sandbox, and lines of the audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from sandmesh.errors import InternalError, SandmeshError
from tests.attacks.tally import Tally
from tests.attacks.target import Target
from tests.mesh.tenants.access_world import REQUESTS, public_methods

OF_ALL: Final = ("ListTemplates", "GetCapacity", "GetPrincipal", "SealSecret")
"""What anybody with a token may call, which shows nothing of anybody's."""

_ENDED: Final = ("one whose token expired", "one whose token was revoked", "a stranger", "nobody")
_MARK: Final = "a-line-that-was-forged"
_FORGED: Final = '{"method": "' + _MARK + '", "outcome": "OK"}'
_BREAKS: Final = ("\n", "\r\n", "\r", "\x0b", "\x85", "\u2028", "\0", "\x1b[2J", '"}\n', "\\n")
_REMAINS: Final = (
    *("cat /workspace/left", "cat /tmp/left", "cat ~/left", "cat /dev/shm/left", "ls -A /workspace | grep left"),
    *("ls -A /tmp | grep left", "ls -A ~ | grep left", "ps ax | grep -v grep | grep sleeping-of-ada", "echo $OF_ADA"),
    *("grep -ra of-ada /proc/self/environ", "ss -xl 2>/dev/null | grep of-ada", "cat /proc/net/unix | grep of-ada"),
    *("ipcs -m 2>/dev/null | grep 4242", "find / -xdev -name '*left*' -newer /etc/hostname 2>/dev/null | grep ada"),
    *("crontab -l 2>/dev/null | grep ada", "cat ~/.bash_history | grep ada", "cat ~/.ipython/*/history* | grep ada"),
)
_LEAVE: Final = (
    "for at in /workspace /tmp ~ /dev/shm; do echo of-ada > $at/left; done; export OF_ADA=1; "
    "(exec -a sleeping-of-ada sleep 300 >/dev/null 2>&1 &)"
)


async def call_for_anothers(target: Target, tally: Tally) -> None:
    """Send every public RPC about what is ada's, as bob, as a sandbox of bob's, and as a reader."""
    for who in ("bob", "bob's sandbox", "a reader of ada's"):
        for method in public_methods():
            name = f"{method.containing_service.name}.{method.name}"
            if method.name in OF_ALL or (who.startswith("a reader") and not _changes(method.name)):
                continue
            try:
                answer = await target.world.send(method, REQUESTS[name](target.adas), who, 5.0)
                held = target.adas.sandbox_id not in str(answer) and target.adas.session_id not in str(answer)
            except InternalError:
                held = False
            except (SandmeshError, TimeoutError):
                held = True
            tally.note(f"{who}: {name}", held=held)
    request = REQUESTS["SandboxService.GetSandbox"](target.adas)
    answer = await target.world.send(_named("GetSandbox"), request, "ada")
    tally.note("ada's sandbox is ready still", held="SANDBOX_STATE_READY" in str(answer))


async def show_ended_tokens(target: Target, tally: Tally) -> None:
    """Send every public RPC with tokens that have ended, never were, or are missing."""
    for who in _ENDED:
        for method in public_methods():
            name = f"{method.containing_service.name}.{method.name}"
            try:
                await target.world.send(method, REQUESTS[name](target.adas), who)
                answer = "answered"
            except SandmeshError as error:
                answer = error.reason
            except TimeoutError:
                answer = "not answered"
            tally.note(f"{who}: {name}: {answer}", held=answer == "UNAUTHENTICATED")


async def look_for_remains(target: Target, tally: Tally) -> None:
    """Use a sandbox of the pool as ada, end it, and look for what is left of it in bob's next ones."""
    async with target.box("ada") as box:
        await box.run_shell_command(_LEAVE)
        await box.run_ipython_cell("of_ada = 1; import builtins; builtins.of_ada = 1")
    for _ in range(2):
        async with target.box("bob") as box:
            for command in _REMAINS:
                found = (await box.run_shell_command(command)).stdout
                tally.note(command, held=not found.strip())
            for expression in ("of_ada", "__builtins__.of_ada", "get_ipython().user_ns['of_ada']"):
                result = await box.run_ipython_cell(expression)
                tally.note(expression, held=result.is_error)


async def forge_lines(target: Target, tally: Tally) -> None:
    """Send names with ends of lines in everything that the audit repeats, and look for a line of the attacker's."""
    names = [f"x{end}{_FORGED}{end}y" for end in _BREAKS]
    for name in names:
        headers = {"User-Agent": "a", "X-API-KEY": target.world.secrets["bob's key"]}
        body = json.dumps({"metadata": {"a": name}, "templateID": name})
        await target.get("/v2/sandboxes", method="POST", headers=headers, data=body)
        for method, request in _naming(target, name):
            with suppress(SandmeshError, ValueError, TimeoutError):
                await target.world.send(method, request, "bob", 5.0)
        lines = target.audit.read_text(errors="surrogateescape").split("\n")
        parsed = [json.loads(line) for line in lines if line]
        tally.note(f"a line with {name[:12]!r}", held=not any(one.get("method") == _MARK for one in parsed))
        signs = "\r\x0b\x85\u2028\0\x1b"
        tally.note(f"control characters of {name[:12]!r}", held=not any(sign in "".join(lines) for sign in signs))


def _naming(target: Target, name: str) -> Iterator[tuple[MethodDescriptor, Message]]:
    for method_name, service, field in (
        ("GetSandbox", "SandboxService", "sandbox_id"),
        ("GetSession", "SessionService", "session_id"),
        ("ReleaseSession", "SessionService", "session_id"),
        ("DeleteSnapshot", "SandboxService", "snapshot_id"),
        ("DeleteSecret", "SecretService", "name"),
        ("RevokeToken", "TokenService", "token_id"),
    ):
        request = REQUESTS[f"{service}.{method_name}"](target.adas)
        setattr(request, field, name)
        yield _named(method_name), request


def _named(name: str) -> MethodDescriptor:
    return next(method for method in public_methods() if method.name == name)


def _changes(name: str) -> bool:
    return not name.startswith(("Get", "List", "Watch", "Attach"))
