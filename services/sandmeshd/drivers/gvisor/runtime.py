"""Whether an engine can run gVisor as its driver needs it: said by what is registered with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.engine.runtimes import GVISOR

LOOPBACK = ("network", ("none",))
"""What gives sandboxes a loopback and nothing else, whatever the engine makes of their network."""

SOCKETS = ("host-uds", ("create", "all"))
"""What lets the driver reach the socket that an agent makes."""

LIFE = ("host-fifo", ("open",))
"""What lets sandboxes end with their driver, by the pipe that it holds."""

REGISTER = (
    'register it as "runsc" in /etc/docker/daemon.json, {"runtimes": {"runsc": {"path": "/usr/bin/runsc", '
    '"runtimeArgs": ["--network=none", "--host-uds=create", "--host-fifo=open"]}}}, and restart the engine'
)
INSTALL = "install gVisor (apt-get install runsc, or https://gvisor.dev/docs/user_guide/install/)"


def check_runtime(info: Mapping[str, Any], *, ends_with_driver: bool) -> None:
    """Check that an engine, by what it says of itself, has runsc with the arguments that are needed.

    Raises:
        RuntimeUnavailable: It lacks something; `facts["fix"]` says what to do.
    """
    runtimes: Mapping[str, Mapping[str, Any]] = info.get("Runtimes") or {}
    runtime = runtimes.get(GVISOR.runtime)
    if runtime is None:
        raise _lacking(f"the engine has no runtime {GVISOR.runtime}, only {', '.join(sorted(runtimes))}", INSTALL)
    stated = dict(_arguments(runtime.get("runtimeArgs") or ()))
    for name, values in (LOOPBACK, SOCKETS, *([LIFE] if ends_with_driver else [])):
        if stated.get(name) not in values:
            raise _lacking(f"the engine's runtime {GVISOR.runtime} is registered without --{name}={values[0]}", "")


def _lacking(what: str, first: str) -> RuntimeUnavailable:
    fix = f"{first} and {REGISTER}" if first else REGISTER
    return RuntimeUnavailable(f"{what}: {fix}", {"fix": fix})


def _arguments(given: Any) -> Iterator[tuple[str, str]]:
    for argument in given:
        found = re.fullmatch(r"--?([a-z0-9-]+)(?:=(.*))?", str(argument))
        if found is not None:
            yield found[1], found[2] or "true"
