"""What is known of a session's instance: whether its agent answers, and how it ended where it does not."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout

from sandmesh.errors import SandboxLost
from sandmeshd.agentlink.addresses import read_address, system_authorities
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.clouds.fc.service import FunctionCompute
from sandmeshd.drivers.clouds.fc.sessions import Session

ATTEMPT_SECONDS = 5.0
LONGEST_WORDS = 500
_EXIT = re.compile(r"\bcode:?\s*(\d+)")


async def answers(session: Session) -> bool:
    """Return whether a session's agent answers as its sandbox."""
    try:
        async with open_link(session.sandbox, ATTEMPT_SECONDS):
            return True
    except SandboxLost:
        return False


async def end_of(service: FunctionCompute, session: Session) -> str:
    """Return how a session ended, empty while it lives.

    Raises:
        SandmeshError: As the service's methods.
    """
    found = await service.list_sessions(session.function, session.session_id)
    living = [one for one in found if one.get("sessionStatus") != "Expired"]
    if living:
        return ""
    return _why_ended(found[0], session.begun) if found else "its session was deleted by somebody else"


def _why_ended(found: dict[str, Any], begun: float) -> str:
    seconds, idle = int(found.get("sessionTTLInSeconds") or 0), int(found.get("sessionIdleTimeoutInSeconds") or 0)
    begun = began(found) or begun
    if seconds and time.time() >= begun + seconds:
        return f"its session's {seconds} s are over, after which Function Compute ended it"
    return f"Function Compute ended its session, which may be without links for {idle} s, or ended it by itself"


def began(found: dict[str, Any]) -> float:
    """Return when a session was made, in seconds since 1970; 0 where that is not said."""
    try:
        return datetime.fromisoformat(str(found.get("createdTime"))).timestamp()
    except ValueError:
        return 0.0


async def last_words(session: Session) -> str:
    """Return what the vendor's gateway answers for a session whose agent does not answer, empty for nothing."""
    address = read_address(session.sandbox.endpoint)
    if address.affinity is None:
        return ""
    url = f"https://{address.host}:{address.port}{address.target}"
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=ATTEMPT_SECONDS)) as client,
            client.get(url, headers=dict([address.affinity]), ssl=system_authorities()) as response,
        ):
            text = (await response.content.read(LONGEST_WORDS)).decode("utf-8", "replace").strip()
    except (ClientError, OSError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return "" if response.status < 400 else f"{_exit(text)}status {response.status}: {text}"


def _exit(text: str) -> str:
    found = _EXIT.search(text)
    code = int(found[1]) if found else 0
    return f"signal {code - 128}, " if 128 < code < 192 else ""
