"""Who has the console open: links that can be used once, and the sessions that they begin."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from sandmesh import SandboxAsync
from sandmesh.mesh import MeshAsync, PrincipalInfo

LINK_SECONDS: Final = 300
SESSION_SECONDS: Final = 12 * 3600
MOST: Final = 256
"""How many links, sessions and sessions only to look there are at a time; the oldest of a kind make room."""


@dataclass(frozen=True)
class Session:
    """A person who has the console open: what they are to the mesh, by the token that their link was made with."""

    mesh: MeshAsync
    principal: PrincipalInfo
    address: str
    token: str | None
    expires: float
    """Of the monotonic clock."""
    only_shows: bool = False
    """Whether its link was made only to look."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def read_only(self) -> bool:
        """Whether nothing is used, changed or ended in it."""
        return self.only_shows or self.principal.read_only

    @property
    def seconds_left(self) -> float:
        """How long it lasts."""
        return self.expires - time.monotonic()

    async def until_end(self) -> None:
        """Wait until it has ended or expired, and with it what it has open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left):
                await self.ended.wait()

    async def close(self) -> None:
        """End it, with all that waits for its end."""
        self.ended.set()
        await self.mesh.close()

    @asynccontextmanager
    async def box(self, sandbox_id: str) -> AsyncGenerator[SandboxAsync]:
        """Yield a handle on a sandbox, as it is leased now; it stays as it is."""
        async with SandboxAsync(sandbox_id, base_url=self.address, bearer_token=self.token) as box:
            yield box


class ConsoleSessions:
    """The links and sessions of a console. What their keys are is kept as hashes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._links: OrderedDict[str, tuple[str | None, bool, float]] = OrderedDict()
        self._sessions: dict[str, Session] = {}

    def make_link(self, token: str | None, *, read_only: bool = False) -> str:
        """Return a code that begins one session with a token, or only to look by it, within five minutes."""
        code = secrets.token_urlsafe(32)
        self._links[_hash(code)] = token, read_only, time.monotonic() + LINK_SECONDS
        while len(self._links) > MOST:
            self._links.popitem(last=False)
        return code

    async def begin(self, code: str) -> tuple[str, Session] | None:
        """Begin the session of a code; return its key and itself, None where the code was used or has expired.

        Raises:
            Unauthenticated: The mesh does not accept the code's token any more.
        """
        token, read_only, expires = self._links.pop(_hash(code), (None, False, 0.0))
        if expires <= time.monotonic():
            return None
        mesh = await MeshAsync(self.address, token).start()
        try:
            principal = await mesh.whoami()
        except BaseException:
            await mesh.close()
            raise
        key = secrets.token_urlsafe(32)
        session = Session(
            mesh=mesh,
            principal=principal,
            address=self.address,
            token=token,
            expires=time.monotonic() + SESSION_SECONDS,
            only_shows=read_only,
        )
        self._sessions[_hash(key)] = session
        # Those that links only to look began make no room for themselves among the others.
        alike = [name for name, one in self._sessions.items() if one.only_shows == read_only]
        for name in alike[:-MOST]:
            await self._sessions.pop(name).close()
        return key, session

    async def find(self, key: str) -> Session | None:
        """Return the session of a key; None where it has ended."""
        found = self._sessions.get(_hash(key))
        if found is not None and found.seconds_left <= 0:
            await self.end(key)
            return None
        return found

    async def end(self, key: str) -> None:
        """End a session."""
        found = self._sessions.pop(_hash(key), None)
        if found is not None:
            await found.close()

    async def close(self) -> None:
        """End all sessions."""
        while self._sessions:
            await self._sessions.popitem()[1].close()


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
