"""Frames that user code forges on its kernel's socket."""

from __future__ import annotations

import pytest

from .sandbox import Ground, talking
from .test_cells import FORGED, run, texts

pytestmark = pytest.mark.needs("user namespaces")


async def test_an_empty_end_frame_replaces_the_kernel_and_later_results_are_their_cells_own(ground: Ground) -> None:
    async with talking(ground) as (_, client):
        ended = await run(client, FORGED.format(frame="struct.pack('!IB', 1, 0x13)", seconds=60))
        assert ended.result.is_error
        assert "died" in ended.result.message
        for number in range(3):
            assert texts(await run(client, str(number))) == str(number)
