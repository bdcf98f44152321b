"""The check that an engine has gVisor's runtime registered with the arguments that the driver requires."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.engine.runtimes import GVISOR

LOOPBACK = ("network", ("none",))
"""Limits sandboxes to a loopback, however the engine configures their network."""

SOCKETS = ("host-uds", ("create", "all"))
"""Lets the driver reach the socket that an agent creates."""

LIFETIME = ("host-fifo", ("open",))
"""Lets sandboxes end with their driver, by the pipe that it holds."""

REGISTER = (
    'register it as "runsc" in /etc/docker/daemon.json, {"runtimes": {"runsc": {"path": "/usr/bin/runsc", '
    '"runtimeArgs": ["--network=none", "--host-uds=create", "--host-fifo=open"]}}}, and restart the engine'
)
INSTALL = "install gVisor (apt-get install runsc, or https://gvisor.dev/docs/user_guide/install/)"


def check_runtime(info: Mapping[str, Any], *, ends_with_driver: bool) -> None:
    """Check that the engine's description has runsc with the required arguments.

    Raises:
        RuntimeUnavailable: It lacks something; `facts["fix"]` says what to do.
    """
    runtimes: Mapping[str, Mapping[str, Any]] = info.get("Runtimes") or {}
    runtime = runtimes.get(GVISOR.runtime)
    if runtime is None:
        raise _unavailable(f"the engine has no runtime {GVISOR.runtime}, only {', '.join(sorted(runtimes))}", INSTALL)
    arguments = dict(_arguments(runtime.get("runtimeArgs") or ()))
    for name, values in (LOOPBACK, SOCKETS, *([LIFETIME] if ends_with_driver else [])):
        if arguments.get(name) not in values:
            raise _unavailable(f"the engine's runtime {GVISOR.runtime} is registered without --{name}={values[0]}", "")


def _unavailable(what: str, first: str) -> RuntimeUnavailable:
    fix = f"{first} and {REGISTER}" if first else REGISTER
    return RuntimeUnavailable(f"{what}: {fix}", {"fix": fix})


def _arguments(words: Any) -> Iterator[tuple[str, str]]:
    for word in words:
        match = re.fullmatch(r"--?([a-z0-9-]+)(?:=(.*))?", str(word))
        if match is not None:
            yield match[1], match[2] or "true"
