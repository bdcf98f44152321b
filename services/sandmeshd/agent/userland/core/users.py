"""The two uids of a container: user code's, and one that agent and zygote share.

The agent begins as uid 0 with the capabilities that it gives up here; from then on no process has uid 0. It and the
zygote keep three: SETUID and SETGID to become user code, KILL to end it. Where the kernel passes no capabilities on to
programs, the zygote's begins as uid 0, too, and leaves it the same way before any user code runs.

An agent that begins as another uid has no capabilities, and user code has that uid, too: what the agent knows is in its
only memory, which is closed to others.
"""

from __future__ import annotations

import os

from sandmeshd.agent.userland.core import syscalls

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from collections.abc import Sequence

AGENT_ID = 900
"""The uid and gid of agent and zygote; the image has a user of that id."""

_KILL, _SETGID, _SETUID, _SETPCAP = 5, 6, 7, 8
_KEPT = (_KILL, _SETGID, _SETUID)


def become_agent(groups: Sequence[int] = ()) -> None:
    """Leave uid 0, where this process has it, with the three capabilities, and no way to others.

    `groups` are the supplementary gids of user code, whose files the agent makes.

    Raises:
        OSError: One of them, or SETPCAP to limit them, is not there.
    """
    if os.geteuid():
        return
    kept = sum(1 << capability for capability in _KEPT)
    syscalls.set_capabilities(kept | 1 << _SETPCAP, kept)
    syscalls.bound_capabilities()
    syscalls.keep_capabilities()
    os.setgroups(groups)
    os.setresgid(AGENT_ID, AGENT_ID, AGENT_ID)
    os.setresuid(AGENT_ID, AGENT_ID, AGENT_ID)
    syscalls.set_capabilities(kept, kept)


def pass_on_capabilities() -> None:
    """Keep the agent's capabilities in the zygote's interpreter; one that starts as uid 0 has them anyway."""
    if os.geteuid() != AGENT_ID:
        return
    for capability in _KEPT:
        syscalls.pass_on_capability(capability)


def bequeath_no_capabilities() -> None:
    """Keep the agent's capabilities only in this process: no program that it executes inherits one."""
    if os.getuid() == AGENT_ID:
        syscalls.set_capabilities(sum(1 << capability for capability in _KEPT), 0)


def become_user(user: int, group: int = 0) -> None:
    """Turn this fresh child of the zygote into user code, for good; its supplementary gids are the zygote's."""
    if os.getuid() != user:
        group = group or user
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    syscalls.clear_capabilities()
