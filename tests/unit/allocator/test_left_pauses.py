"""A pause whose client leaves before the driver has failed."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from tests.unit.allocator.conftest import Mesh
from tests.unit.store.waiting import until


async def test_a_pause_that_fails_after_its_client_left_changes_nothing_and_is_no_unread_error(mesh: Mesh) -> None:
    unread: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
    async with mesh.allocator() as one:
        sandbox = (await one.claim("a")).sandbox
        mesh.runtime.gate.clear()
        mesh.runtime.entered.clear()
        mesh.runtime.failures.append(RuntimeUnavailable("the node went away"))
        asking = asyncio.create_task(one.pause(sandbox, sandbox.lease.fencing_token))
        await mesh.runtime.entered.wait()
        asking.cancel()
        await asyncio.wait([asking])
        mesh.runtime.gate.set()

        async def failed() -> bool:
            return not mesh.runtime.failures

        await until(failed)
        assert (await one.get(sandbox.sandbox_id)).state == pb.SANDBOX_STATE_READY
        paused = await one.pause(sandbox, sandbox.lease.fencing_token)
        assert paused.state == pb.SANDBOX_STATE_PAUSED
    gc.collect()
    await asyncio.sleep(0)
    assert not unread
