"""Whether this machine can start a guest: BoxLite itself finds out after seconds, and less clearly."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable

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
