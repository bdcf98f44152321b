"""Webhooks as an operator has them: the commands, a receiver that fails and is killed, and what happens then."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.mesh import MeshAsync, webhooks
from sandmeshd.facades.webhooks.delivery import Delivery
from sandmeshd.facades.webhooks.endpoint import CloudEvents
from sandmeshd.facades.webhooks.hooks import Hook, Hooks
from sandmeshd.mesh import Mesh
from tests.environments import environment_of

pytestmark = pytest.mark.timeout(300)

RECEIVER = Path(__file__).with_name("receiver.py")
REFERENCE = """
import json, sys
from standardwebhooks.webhooks import Webhook
for line in open(sys.argv[2]):
    request = json.loads(line)
    Webhook(sys.argv[1]).verify(request["body"], {name.lower(): value for name, value in request["headers"].items()})
print("verified")
"""


@pytest.fixture
def mesh(fresh_mesh: Mesh) -> Mesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


class Operator:
    """An operator's commands, for webhooks in one folder."""

    def __init__(self, mesh: Mesh, folder: Path) -> None:
        self.address = mesh.addresses[0]
        self.folder = folder

    def _command(self, *words: str) -> list[str]:
        options = ["--folder", str(self.folder / "hooks")]
        options += ["--base-url", self.address] if words[0] in ("add", "run") else []
        return [sys.executable, "-m", "sandmeshd.cli.user", "webhook", *words, *options]

    async def do(self, *words: str, status: int = 0) -> str:
        """Run a command; return its output."""
        process = await asyncio.create_subprocess_exec(
            *self._command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = (await process.communicate())[0].decode()
        assert process.returncode == status, output
        return output.strip()

    async def listed(self, name: str = "") -> dict[str, Any]:
        """Return a webhook, or the only one."""
        found: list[dict[str, Any]] = json.loads(await self.do("ls", "-o", "json"))
        (one,) = [each for each in found if name in ("", each["name"])]
        return one

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        """Run `webhook run`; the block's end kills it."""
        process = await asyncio.create_subprocess_exec(*self._command("run"), stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert await process.stdout.readline()
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def receiving(self, port: int = 0, parts: int = 1, refused: str = "") -> AsyncGenerator[int]:
        """Run a receiver that accepts one of so many requests, none with a text, or answers none; yield its port."""
        command = [sys.executable, str(RECEIVER), str(port), str(self.folder / "requests"), str(parts), refused]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert process.stdout is not None
            yield int(await process.stdout.readline())
        finally:
            process.kill()
            await process.wait()

    def events(self) -> list[dict[str, Any]]:
        """Return what was received, in order."""
        path = self.folder / "requests"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(json.loads(line)["body"]) for line in lines]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition of what was received holds."""
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110 - another process writes the file
                await asyncio.sleep(0.1)


async def live(address: str) -> str:
    """Create a sandbox, use and end it; return its id."""
    async with BaseSandboxAsync(base_url=address) as box:
        assert (await box.run_ipython_cell("6 * 7")).text.strip() == "42"
        await box.renew(600)
        return box.sandbox_id


@pytest.fixture
def operator(mesh: Mesh, tmp_path: Path) -> Operator:
    """Return an operator of a mesh."""
    return Operator(mesh, tmp_path)


async def test_every_event_arrives_in_order_whatever_ends_meanwhile(operator: Operator) -> None:
    async with operator.receiving(parts=2) as port:
        secret = (await operator.do("add", "all", f"http://127.0.0.1:{port}/", "--inward")).splitlines()[0]
        async with operator.running():
            boxes = list(await asyncio.gather(*(live(operator.address) for _ in range(6))))
            await operator.until(lambda: len(operator.events()) >= 3)
    # Both were killed, and sandboxes come and go while neither runs.
    boxes.append(await live(operator.address))
    async with MeshAsync(operator.address) as client:
        while True:
            expected = [event.event_id for event in await client.events.list(limit=1000)]
            ends = [event for event in await client.events.list(limit=1000) if event.kind == "deleted"]
            if len(ends) >= len(boxes):
                break
    async with operator.receiving(port, parts=2), operator.running():
        await operator.until(lambda: {event["id"].partition("/")[0] for event in operator.events()} >= set(expected))
    first: dict[str, list[str]] = {}
    for event in operator.events():
        seen = first.setdefault(event["subject"], [])
        if event["id"] not in seen:
            seen.append(event["id"])
    order = {event_id: number for number, event_id in enumerate(expected)}
    for ids in first.values():
        numbers = [order[identifier.partition("/")[0]] for identifier in ids if identifier.partition("/")[0] in order]
        assert numbers == sorted(numbers)
    assert set(boxes) <= first.keys()
    found = await operator.listed()
    assert found["failures"] > 0
    assert (found["dead"], found["gaps"]) == (0, 0)
    assert "secret" not in found
    request = json.loads((operator.folder / "requests").read_text().splitlines()[0])
    event = webhooks.verify(secret, request["headers"], request["body"].encode())
    assert event["specversion"] == "1.0"
    python = await asyncio.to_thread(environment_of, "standardwebhooks==1.1.0", with_own=False)
    command = [str(python), "-c", REFERENCE, secret, str(operator.folder / "requests")]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"verified\n"  # noqa: ASYNC221 - short


async def test_what_no_receiver_takes_is_given_up_shown_and_counted(operator: Operator) -> None:
    async with operator.receiving() as port:
        pass
    await operator.do("add", "down", f"http://127.0.0.1:{port}/", "--inward", "--give-up", "1s")
    async with operator.running():
        sandbox_id = await live(operator.address)
        async with asyncio.timeout(60):
            while (await operator.listed())["dead"] < 2:
                pass
    assert sandbox_id in await operator.do("dead", "down")
    await operator.do("rm", "down")
    assert json.loads(await operator.do("ls", "-o", "json")) == []
    assert [path.name for path in (operator.folder / "hooks").iterdir()] == ["lock"]


async def test_an_endpoint_that_never_answers_holds_up_nothing_else(operator: Operator) -> None:
    async with operator.receiving(parts=0) as hanging, operator.receiving() as port:
        options = ("--inward", "--give-up", "1s")
        await operator.do("add", "hangs", f"http://127.0.0.1:{hanging}/", *options)
        await operator.do("add", "well", f"http://127.0.0.1:{port}/", *options)
        async with operator.running():
            boxes = await asyncio.gather(*(live(operator.address) for _ in range(20)))
            ended = {(sandbox_id, "deleted") for sandbox_id in boxes}
            await operator.until(lambda: ended <= {(e["subject"], e["data"]["kind"]) for e in operator.events()})
            # All of them came while the other webhook had hardly begun.
            hanging_one, events = await operator.listed("hangs"), len(operator.events())
            assert hanging_one["failures"] + hanging_one["dead"] < events / 2
            async with asyncio.timeout(60):
                while (await operator.listed("hangs"))["dead"] < len(boxes):
                    pass
        assert (await operator.listed("well"))["failures"] == 0
        assert "no answer within 15 seconds" in await operator.do("dead", "hangs")


async def test_events_that_an_endpoint_never_takes_hold_up_those_of_no_other_sandbox(operator: Operator) -> None:
    hooks = Hooks(operator.folder / "hooks")
    async with MeshAsync(operator.address) as mesh, BaseSandboxAsync(base_url=operator.address) as refused:
        async with operator.receiving(refused=refused.sandbox_id) as port:
            hook = Hook(name="some", url=f"http://127.0.0.1:{port}/", secret=webhooks.new_secret(), inward=True)
            hooks.add(hook, "0-0")
            delivering = asyncio.create_task(Delivery(hooks, hook, mesh, CloudEvents(), most_waiting=4).run())
            try:
                # Many more than may wait.
                boxes = [await live(operator.address) for _ in range(4)]
                ended = {(sandbox_id, "deleted") for sandbox_id in boxes}
                await operator.until(lambda: ended <= {(e["subject"], e["data"]["kind"]) for e in operator.events()})
            finally:
                delivering.cancel()
                await asyncio.wait([delivering])
        # Where it begins again, what was not delivered is still to come.
        assert hooks.progress("some").dead == 0
        async with operator.receiving() as port:
            hooks.replace(replace(hook, url=f"http://127.0.0.1:{port}/"))
            async with operator.running():
                await operator.until(lambda: any(e["subject"] == refused.sandbox_id for e in operator.events()))


@pytest.mark.needs("root")
def test_a_name_that_no_server_answers_holds_up_nothing_else(tmp_path: Path) -> None:
    command = ["unshare", "--mount", sys.executable, "-m", "tests.mesh.webhooks.name_server_world", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


async def test_a_filter_lets_its_events_through_only(operator: Operator) -> None:
    async with operator.receiving() as port:
        url = f"http://127.0.0.1:{port}/"
        await operator.do("add", "some", url, "--inward", "--template", "base", "--kind", "deleted")
        async with operator.running():
            async with BaseSandboxAsync(base_url=operator.address):
                pass
            await operator.until(lambda: bool(operator.events()))
        await operator.do("add", "none", url, "--inward", "--project", "other")
    assert {event["type"] for event in operator.events()} == {"sandmesh.sandbox.deleted"}


async def test_the_test_says_what_the_endpoint_answers(operator: Operator) -> None:
    async with operator.receiving() as port:
        await operator.do("add", "mine", f"http://127.0.0.1:{port}/", "--inward")
        assert await operator.do("test", "mine") == "accepted"
    assert [event["type"] for event in operator.events()] == ["sandmesh.test"]
    assert "Cannot connect" in await operator.do("test", "mine", status=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1"])
async def test_inward_addresses_are_refused_as_in_sandboxes(operator: Operator, host: str) -> None:
    await operator.do("add", "inward", f"http://{host}:1/")
    assert "is not a public address" in await operator.do("test", "inward", status=1)


async def test_two_processes_do_not_send_the_same(operator: Operator) -> None:
    async with operator.running():
        assert "another `sandmesh webhook run`" in await operator.do("run", status=1)
