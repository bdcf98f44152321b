"""Android in a container (redroid), which an administrator starts on an engine and attaches as a device.

`python -m sandmeshd.drivers.engine.redroid IMAGE` starts one and prints what to run next. It needs binder in this
machine's kernel. Such a container is privileged, so it is the administrator's and not a sandbox: sandboxes reach it
only by adb.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from pathlib import Path
from typing import Any, Final

from aiodocker import DockerError

from sandmesh.errors import CapabilityMissing, SandmeshError, WrongState
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine, open_engine
from sandmeshd.drivers.engine.settings import DEFAULT_URL

LABEL: Final = "dev.sandmesh.redroid"
MODULE: Final = "modprobe binder_linux devices=binder,hwbinder,vndbinder"
_ADB: Final = "5555/tcp"
_MEMORY: Final = 4 << 30


def container_spec(image: str, width: int = 720, height: int = 1280) -> dict[str, Any]:
    """Return the configuration of a container with Android, as the engine's API takes it; adb is at the loopback."""
    boot = {"width": width, "height": height, "fps": 15, "gpu_mode": "guest"}
    return {
        "Image": image,
        "Cmd": [f"androidboot.redroid_{name}={value}" for name, value in boot.items()],
        "Labels": {LABEL: "1"},
        "ExposedPorts": {_ADB: {}},
        "HostConfig": {
            # Android mounts binder's file system and has its own devices and control groups.
            "Privileged": True,
            "Memory": _MEMORY,
            "MemorySwap": _MEMORY,
            "PortBindings": {_ADB: [{"HostIp": "127.0.0.1", "HostPort": ""}]},
            "RestartPolicy": {"Name": "no"},
        },
    }


def check_binder(filesystems: Path = Path("/proc/filesystems"), device: Path = Path("/dev/binder")) -> None:
    """Check that this machine's kernel has binder, as a file system or as a device.

    Raises:
        CapabilityMissing: It has not; the message has the line that loads it.
    """
    found = filesystems.read_text().split() if filesystems.exists() else []
    if "binder" not in found and not device.exists():
        message = f"this machine's kernel has no binder, which Android needs: run `{MODULE}`"
        raise CapabilityMissing(message, {"needs": "binder", "fix": MODULE})


async def start(engine: Engine, image: str) -> str:
    """Start a container with Android on an engine of this machine, and return its serial for adb.

    Raises:
        CapabilityMissing: The kernel has no binder.
        WrongState: The engine does not have the image.
    """
    check_binder()
    name = f"sandmesh-redroid-{secrets.token_hex(5)}"
    try:
        await engine.start(name, container_spec(image))
    except DockerError as error:
        if error.status != NOT_FOUND:
            raise
        message = f"the engine does not have the image {image}: docker pull {image}"
        raise WrongState(message, {"image": image}) from None
    shown = await engine.inspect(name)
    if shown is None:
        raise WrongState(f"{name} ended immediately", {"image": image})
    return f"127.0.0.1:{shown['NetworkSettings']['Ports'][_ADB][0]['HostPort']}"


async def _run(image: str) -> str:
    async with open_engine(os.environ.get("SANDMESH_DOCKER_URL") or DEFAULT_URL) as engine:
        return await start(engine, image)


def main() -> None:
    """Start Android, and print how it is attached."""
    parser = argparse.ArgumentParser("python -m sandmeshd.drivers.engine.redroid", description=__doc__)
    parser.add_argument("image", help="as redroid/redroid:12.0.0-latest, which the engine has")
    image = parser.parse_args().image
    try:
        serial = asyncio.run(_run(image))
    except SandmeshError as error:
        sys.exit(f"{error.reason}: {error}")
    sys.stdout.write(f"adb connect {serial}\nsandmesh up --adb-device {serial}\n")


if __name__ == "__main__":
    main()
