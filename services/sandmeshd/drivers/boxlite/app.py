"""The boxlite driver's entry point."""

from __future__ import annotations

import os
import platform
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.egress import Resolver
from sandmeshd.templates import Template


@asynccontextmanager
async def open_driver(
    settings: BoxliteSettings, resolver: Resolver | None = None, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; its sandboxes that live are adopted.

    Raises:
        RuntimeUnavailable: This machine starts no guests, or another driver uses the home.
        InvalidArgument: A setting has no effect with this driver.
    """
    # The library is an extra, and the settings are read where it is not installed too.
    from sandmeshd.drivers.boxlite import composition  # noqa: PLC0415
    from sandmeshd.drivers.boxlite.app import check_guests  # noqa: PLC0415

    check_guests()
    async with composition.open_driver(settings, resolver, templates) as driver:
        yield driver


PLUGIN = DriverPlugin(BoxliteSettings, open_driver)


_FLAGS = {"vmx", "svm"}


def why_no_guest(root: Path = Path("/")) -> str:
    """Return why a machine, whose files are below `root`, can start no guest; empty if nothing speaks against it."""
    device = root / "dev/kvm"
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return "there is no /dev/kvm: turn on virtualization, or load the kvm module"
    except OSError as error:
        return f"/dev/kvm cannot be opened ({error.strerror}): add the driver's user to the group kvm"
    if (root / "sys/module/kvm_pvm").exists():
        return "/dev/kvm is a software one (kvm_pvm), on which BoxLite's kernel does not start"
    if platform.machine() == "x86_64" and not _FLAGS & set((root / "proc/cpuinfo").read_text().split()):
        return "the processor shows neither VT-x nor AMD-V (vmx, svm): its /dev/kvm starts no ordinary guest"
    return ""


def check_guests() -> None:
    """Check that this machine can start guests.

    Raises:
        RuntimeUnavailable: It cannot; the message says why.
    """
    reason = why_no_guest()
    if reason:
        fix = "use a machine with KVM, or another driver"
        message = f"BoxLite cannot start sandboxes here: {reason}; {fix}"
        raise RuntimeUnavailable(message, {"fix": fix, "detail": reason})
