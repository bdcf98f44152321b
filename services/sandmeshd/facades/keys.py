"""Checks keys against the mesh, and caches those that it takes."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Final

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients

_SECONDS: Final = 10.0
_MOST: Final = 10_000
_NOBODY: Final = "sb_" + "0" * 16


class KeyCheck:
    """Checks whether a key is a token of the mesh."""

    def __init__(self, clients: MeshClients) -> None:
        self._clients = clients
        self._valid: OrderedDict[bytes, float] = OrderedDict()

    async def check(self, key: str, argument: str) -> None:
        """Check the key of a request; `argument` is how its client is given one.

        Raises:
            RequestError: There is none.
            Unauthenticated: The mesh does not take it.
            SandmeshError: The mesh cannot be asked.
        """
        if not key:
            raise RequestError(401, f"a key is missing: give {argument}, a token of `sandmesh token create NAME`")
        digest = hashlib.sha256(key.encode()).digest()
        if time.monotonic() < self._valid.get(digest, 0.0):
            return
        async with self._clients.client(key) as mesh:
            # The least that only a valid token may ask.
            with suppress(LookupError):
                await mesh.sandboxes.get(_NOBODY)
        while len(self._valid) >= _MOST:
            self._valid.popitem(last=False)
        self._valid[digest] = time.monotonic() + _SECONDS
