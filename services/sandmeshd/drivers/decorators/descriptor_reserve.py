"""A driver that keeps file descriptors in reserve, so that a process out of them can still delete sandboxes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandmeshError
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.driver_forwarder import ForwardingDriver
from sandmeshd.runtime.processes.descriptors import HeldDescriptors, are_free, lack_of_descriptors

CREATE_LEAVES: Final = 32
"""How many are free where a sandbox is created: the store's and users' connections and logs need some, too."""
DELETION_NEEDS: Final = 16


class DescriptorReserve(ForwardingDriver):
    """A Driver that refuses creates before the process is out of descriptors, and deletes when it is."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self._reserve = HeldDescriptors(DELETION_NEEDS)
        self._one_at_a_time = asyncio.Lock()

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox where enough descriptors stay free."""
        if not are_free(CREATE_LEAVES):
            raise _lack()
        return await self._driver.create_sandbox(request)

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox, with descriptors of the reserve where there are no others."""
        if are_free(DELETION_NEEDS):
            try:
                return await self._driver.delete_sandbox(request)
            except OSError as error:
                if lack_of_descriptors(error) is None:
                    raise
        async with self._one_at_a_time:
            self._reserve.release()
            try:
                return await self._driver.delete_sandbox(request)
            finally:
                self._reserve.hold()

    def close(self) -> None:
        """Release the reserve."""
        self._reserve.release()


@contextmanager
def reserving(driver: Driver) -> Generator[Driver]:
    """Yield a driver with a reserve of descriptors."""
    reserve = DescriptorReserve(driver)
    try:
        yield reserve
    finally:
        reserve.close()


def _lack() -> SandmeshError:
    error = lack_of_descriptors(OSError(errno.EMFILE, "too many open files"))
    if error is None:
        raise AssertionError("EMFILE is a lack of descriptors")
    return error
