"""One sandbox whose root is an image, by a process that the zygote of such sandboxes forked for it.

It does what `root` does, without a new interpreter: the zygote has the agent's code imported by the Python that is in
each such sandbox at the same place.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from sandmeshd.agent.boot import sandbox, service
from sandmeshd.agent.boot.image import entry, filesystem, namespaces
from sandmeshd.agent.boot.image.zygote import HOST
from sandmeshd.agent.userland.core import syscalls
from sandmeshd.agent.userland.core.account import Account
from sandmeshd.agent.userland.core.template_process import FURNISHED

_LOCK, _LOG, _CONFIG, _DRIVER, _HOLD = range(5)
"""The descriptors of a request, after which the lock of its ids comes and the counter of OOM kills, if there are."""


@dataclass(frozen=True)
class Starter:
    """What all sandboxes of a zygote are started with."""

    user_namespace: int
    """The one that those of sandboxes are below; negative: that of this process."""
    pipes: list[int]
    """Those of the zygote's own."""

    def start(self, root: dict[str, Any], fds: list[int], spawned: int, template_process: int) -> NoReturn:
        """Start a sandbox from this fresh child of the zygote, which is told by a record on `spawned`."""
        driver, image_is_seen = fds[_DRIVER], False
        passing = [spawned, *([self.user_namespace] if self.user_namespace >= 0 else [])]
        try:
            os.setsid()
            own = [*fds[:_LOG], *fds[_LOG + 1 :], template_process]
            sandbox.settle(fds[_LOG], [*own, *passing, *self._libraries_pipes(fds)])
            os.umask(0o022)
            namespace = namespaces.make_user_namespace(root["maps"], self.user_namespace)
            layers, sources = namespaces.enter(root, namespace, HOST)
            child = syscalls.fork_bare()
            if child:
                os.write(spawned, sandbox.SPAWNED.pack(os.getpid(), child))
                sandbox.report(driver, {"init": True}, [os.pidfd_open(child)])
                os._exit(0)
            for descriptor in passing:
                os.close(descriptor)
            namespaces.become_root()
            # What fails from here on is the image's matter, not the zygote's.
            image_is_seen = True
            filesystem.enter(root, layers, sources)
            _become_agent(root, fds, template_process)
        except (OSError, ValueError) as error:
            setup = {} if image_is_seen else {"setup": True}
            sandbox.report(driver, {"error": f"its root could not be made: {error}", **setup})
        finally:
            os._exit(1)

    def _libraries_pipes(self, fds: list[int]) -> list[int]:
        """Return libraries' pipes: after a fork libuv closes the numbers that it knows, whatever they are by then."""
        found: list[int] = []
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow here
            # The list has its own descriptor, which is closed by now.
            with suppress(OSError):
                if int(name) > 2 and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                    found.append(int(name))
        return [fd for fd in found if fd not in self.pipes and fd not in fds]


def _become_agent(root: dict[str, Any], fds: list[int], template_process: int) -> None:
    image = entry.ImageEntry(root["entry"])
    account = image.account()
    control = sandbox.start_user_side(template_process, fds[_DRIVER], _request(account, image.processes))
    control.send(FURNISHED)
    syscalls.install_filter(base64.b64decode(root["filter"]))
    syscalls.set_name("sandmesh-agent")
    entry.become(account)
    counter = fds[-1] if root["counted"] else -1
    descriptors = service.AgentDescriptors(fds[_CONFIG], fds[_DRIVER], counter)
    os._exit(service.serve(descriptors, control, account=account))


def _request(account: Account, processes: int) -> bytes:
    known = {"uid": account.uid, "gid": account.gid, "groups": account.groups, "processes": processes}
    return json.dumps(known).encode()
