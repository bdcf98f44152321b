"""Kernels that are forked from one process."""

from __future__ import annotations

import textwrap

import pytest

from .client import Client
from .test_cells import run

pytestmark = pytest.mark.needs("user namespaces")


async def test_each_kernel_has_random_numbers_and_locks_of_its_own(client: Client) -> None:
    code = """
        import logging, random, threading
        thread = threading.Thread(target=logging.getLogger("here").info, args=("said",))
        thread.start()
        thread.join(10)
        print(random.random(), thread.is_alive(), threading.current_thread() is threading.main_thread())
    """
    said: list[str] = []
    for _ in range(2):
        ended = await run(client, textwrap.dedent(code))
        said.append(ended.stdout.decode())
        await run(client, "exit()")
    assert [line.split()[1:] for line in said] == [["False", "True"]] * 2
    assert said[0] != said[1]
