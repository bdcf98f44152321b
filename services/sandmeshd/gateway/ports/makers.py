"""The mesh's tokens that URLs were made with, and whose sandboxes they lead to: a URL ends with its token."""

from __future__ import annotations

from typing import Final

from sandmeshd.auth.principal import ADMIN, user_of
from sandmeshd.auth.token_cache import KnownTokens
from sandmeshd.gateway.ports.agent_call import ask, start_frame
from sandmeshd.gateway.ports.tokens import TokenTarget
from sandmeshd.gateway.ports.tunnel import OpenTunnels
from sandmeshd.gateway.routes.routes import Routes

_MOST: Final = 10_000


class Makers:
    """Know which token each URL was made with, and end connections through the URLs of revoked ones."""

    def __init__(self, routes: Routes, tokens: KnownTokens, grace: float, open_tunnels: OpenTunnels) -> None:
        self._routes = routes
        self._tokens = tokens
        self._grace = grace
        self._open_tunnels = open_tunnels
        self._made: dict[str, tuple[str, str]] = {}
        """The token and the owner of each URL, by exposure."""
        tokens.on_revoked.append(self._revoked)

    async def owner(self, target: TokenTarget) -> str:
        """Return the owner of the sandbox that a URL leads to, where the token that it was made with is in force.

        Raises:
            Unauthenticated: It was revoked or has expired.
            Refused: The sandbox's agent does not know the URL, or not any more.
            SandmeshError: The sandbox is gone, or it is not known whether the token is in force.
        """
        made = self._made.get(target.exposure_id)
        if made is None:
            named = {"exposure_id": target.exposure_id}
            frame = start_frame(target.sandbox_id, "ports.check", named)
            facts = await ask(self._routes.of(ADMIN), self._grace, frame)
            owner = user_of(self._routes.session_keys.get(target.sandbox_id, ""))
            made = self._made[target.exposure_id] = str(facts.get("token_id", "")), owner
            self._trim()
        token_id, owner = made
        if token_id:
            await self._tokens.check_id(token_id)
        return owner

    def _trim(self) -> None:
        if len(self._made) > _MOST:
            unused = (maker for maker in self._made if not self._open_tunnels.has(maker))
            self._made.pop(next(unused, ""), None)

    def _revoked(self, token_ids: set[str]) -> None:
        for exposure_id in [one for one, (token_id, _) in self._made.items() if token_id in token_ids]:
            self._open_tunnels.abort(exposure_id)
