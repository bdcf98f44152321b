"""What a session's instance says by itself: its agent's record, and its gateway's words where no agent answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from sandmesh.errors import SandboxLost
from sandmeshd.agentlink.addresses import read_address, system_authorities
from sandmeshd.agentlink.connection import open_link, read_record
from sandmeshd.drivers.clouds.keys import MeshKeys
from sandmeshd.drivers.clouds.sessions import RentedSession

ATTEMPT_SECONDS = 5.0
LONGEST_WORDS = 500
_EXIT = re.compile(r"\bcode:?\s*(\d+)")
_OF_THE_GATEWAY: Final = (429, 503, 504)
"""The statuses with which a gateway speaks of itself, not of an instance."""


@dataclass(frozen=True)
class Words:
    """What the vendor's gateway says of a session."""

    text: str
    """Empty where an agent answers it."""
    is_of_instance: bool
    """Whether it is about the instance; otherwise it is about the way there."""


async def answers(session: RentedSession) -> bool:
    """Return whether a session's agent answers as its sandbox."""
    try:
        async with open_link(session.sandbox, ATTEMPT_SECONDS):
            return True
    except SandboxLost:
        return False


async def read_kept(session: RentedSession, keys: MeshKeys) -> bool:
    """Fill a session with the record that its agent keeps; return whether the mesh sealed that.

    Raises:
        SandboxLost, ProtocolMismatch: The agent does not answer as this mesh's.
    """
    record = keys.unseal(await read_record(session.sandbox), session.session_id)
    if record is None:
        return False
    record.sandbox.endpoint = session.sandbox.endpoint
    session.record, session.is_read = record, True
    return True


def seconds_of(stamp: object) -> float:
    """Return the seconds since 1970 of a vendor's time; 0 where that is none."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


async def last_words(session: RentedSession) -> Words:
    """Return what the vendor's gateway answers for a session whose agent does not answer."""
    address = read_address(session.sandbox.endpoint)
    url = f"https://{address.host}:{address.port}{address.target}"
    headers = dict([address.affinity]) if address.affinity else {}
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=ATTEMPT_SECONDS)) as client,
            client.get(url, headers=headers, ssl=system_authorities()) as response,
        ):
            text = (await response.content.read(LONGEST_WORDS)).decode("utf-8", "replace").strip()
    except (ClientError, OSError, TimeoutError) as error:
        return Words(f"the cloud's gateway cannot be reached: {error or type(error).__name__}", is_of_instance=False)
    if response.status < 400:
        return Words("", is_of_instance=True)
    message = f"{_exit(text)}status {response.status}: {text}"
    return Words(message, is_of_instance=response.status not in _OF_THE_GATEWAY)


def _exit(text: str) -> str:
    found = _EXIT.search(text)
    code = int(found[1]) if found else 0
    return f"signal {code - 128}, " if 128 < code < 192 else ""
