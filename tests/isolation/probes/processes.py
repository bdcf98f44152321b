"""/proc, /sys, other processes, and what a process may be and have."""

from __future__ import annotations

import ctypes
import json
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

from .attempts import opens, probe, status

LIBC = ctypes.CDLL(None, use_errno=True)


@probe
def proc_settings(_: dict[str, Any]) -> list[str]:
    """A file in /proc that is no process's own and can be written: settings, core_pattern, sysrq-trigger."""
    done: list[str] = []
    for place, inner, names in os.walk("/proc"):
        if place == "/proc":
            inner[:] = [name for name in inner if not name.isdigit() and name not in {"self", "thread-self"}]
        done += [path for path in (f"{place}/{name}" for name in names) if opens(path, os.O_WRONLY)]
    return done


@probe
def proc_secrets(_: dict[str, Any]) -> list[str]:
    """Memory, messages and addresses of the kernel."""
    done = [path for path in ("/proc/kcore", "/proc/kmsg", "/proc/kpageflags") if opens(path, os.O_RDONLY)]
    with suppress(OSError), Path("/proc/kallsyms").open() as file:
        if int(file.readline().split()[0], 16):
            done.append("/proc/kallsyms")
    return done


@probe
def sys_tree(_: dict[str, Any]) -> list[str]:
    """The kernel's other tree of settings, with its control groups and its debugging."""
    with suppress(OSError):
        return [str(path) for path in Path("/sys").iterdir()][:3]
    return []


@probe
def first_process(_: dict[str, Any]) -> list[str]:
    """Memory, environment, descriptors and root of what starts user code."""
    names = ("mem", "environ", "maps", "fd", "root/etc", "cwd/etc", "map_files", "syscall", "stack")
    return [f"/proc/1/{name}" for name in names if opens(f"/proc/1/{name}", os.O_RDONLY)]


@probe
def foreign_processes(facts: dict[str, Any]) -> list[str]:
    """A process that is not user code's: the agent, bwrap, the mesh, the host's."""
    done: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            done += [line for word in facts["foreign"] if word in line]
    return done


@probe
def user_map(_: dict[str, Any]) -> list[str]:
    """Another mapping of users, and root in the one that is there."""
    lines = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    broad = [f"{line}" for line in lines if line[2] != "1" or line[0] == "0" or line[1] == "0"]
    written = [name for name in ("uid_map", "gid_map", "setgroups") if _writes(f"/proc/self/{name}", b"0 0 1")]
    return broad + written


def _writes(path: str, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, data)
    except OSError:
        return False
    return True


@probe
def capabilities(_: dict[str, Any]) -> list[str]:
    """A privilege in any of the five sets."""
    found = status()
    return [f"{name} {value}" for name, value in found.items() if name.startswith("Cap") and int(value, 16)]


@probe
def filter_loaded(_: dict[str, Any]) -> list[str]:
    """System calls without a filter."""
    return [] if status()["Seccomp"] == "2" else ["no filter"]


@probe
def become_root(_: dict[str, Any]) -> list[str]:
    """Another user or group."""
    done: list[str] = []
    for name, change in (("setuid", os.setuid), ("setgid", os.setgid)):
        with suppress(OSError):
            change(0)
            done.append(name)
    with suppress(OSError):
        os.setgroups([0])
        done.append("setgroups")
    return done


@probe
def core_dumps(_: dict[str, Any]) -> list[str]:
    """A dump of memory, which the host's core_pattern would hand to a program of the host."""
    return [] if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0) else ["dumps are allowed"]


@probe
def raised_limits(_: dict[str, Any]) -> list[str]:
    """More processes, descriptors and pending signals than there may be."""
    done: list[str] = []
    for name, most in (("NPROC", 5000), ("NOFILE", 8192), ("SIGPENDING", 4096)):
        number = getattr(resource, f"RLIMIT_{name}")
        soft, hard = resource.getrlimit(number)
        if hard == resource.RLIM_INFINITY or hard > most:
            done.append(f"{name}: {hard}")
        with suppress(OSError, ValueError):
            resource.setrlimit(number, (soft, hard + 1))
            done.append(f"{name}: one more")
    return done


@probe
def higher_priority(_: dict[str, Any]) -> list[str]:
    """More of the processor than neighbours get, or a place before them."""
    done: list[str] = []
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -5)
        done.append("nice -5")
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        done.append("real time")
    return done


@probe
def environment(facts: dict[str, Any]) -> list[str]:
    """A variable of the driver's process, here or in any process that can be seen."""
    seen = json.dumps(dict(os.environ)).encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            seen += path.read_bytes()
    return [facts["secret"]] if facts["secret"].encode() in seen else []


@probe
def descriptors(facts: dict[str, Any]) -> list[str]:
    """A descriptor that leads to anything but this call's own streams, and the event loop that a kernel made itself."""
    kinds = [str(Path(f"/proc/self/fd/{name}").readlink()) for name in facts["descriptors"]]
    loops = [kind for kind in kinds if kind == "anon_inode:[eventpoll]"]
    others = [kind for kind in kinds if kind not in loops]
    return [*loops[1:], *(kind for kind in others if kind.partition(":")[0] not in {"pipe", "socket", "/dev/null"})]


@probe
def shared_memory(facts: dict[str, Any]) -> list[str]:
    """Shared memory of the host, by its key and by its name."""
    done = [f"segment {facts['segment']}"] if LIBC.shmget(facts["segment"], 0, 0) >= 0 else []
    return done + [path.name for path in Path("/dev/shm").iterdir() if path.name == facts["shared"]]


@probe
def controlling_terminal(_: dict[str, Any]) -> list[str]:
    """The terminal of who started the mesh."""
    return ["/dev/tty"] if opens("/dev/tty", os.O_RDWR) else []
