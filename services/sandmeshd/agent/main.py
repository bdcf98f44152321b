"""PID 1 of a sandbox: `python -I SITE --config-fd N --ready-fd M [--memory-fd O] [--cgroup-fds P,Q]`.

With `--become [UID,PATH...]` it becomes that uid, which owns those directories. With `--zygote-fd N` it is the zygote
of such processes. With `--container DIR`, instead of the other options, it is PID 1 of a container: see
sandmeshd.agent.boot.container. With `--shut-in UID,PORT` that uid has no network; with `--born DIR` its files come from
there and its volumes are empty; with `--waits LINE` that is its configuration; with `--image JSON` the image has no
agent: see sandmeshd.agent.boot.image.container. With `--image-root JSON` it makes a root of an image and starts PID 1
there, which has `--image JSON`: see sandmeshd.agent.boot.image; with `--image-zygote JSON` it becomes the zygote of
such sandboxes. With `--build-step FD` it is PID 1 of a step of an image's build: see
sandmeshd.agent.boot.build_step.

It forks the process that becomes the zygote before it imports or reads anything: one thread and no secret.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from importlib import import_module
from types import ModuleType

from sandmeshd.agent.processes.namespaces import fork_zygote
from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from typing import Any


_STARTS = {
    "--image-root": "image.root",
    "--image-zygote": "image.zygote",
    "--build-step": "build_step.step",
}
"""What else this program can be, by its option."""


def main() -> None:
    """Run the agent and exit with its code."""
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    syscalls.set_dumpable(False)
    if "--zygote-fd" in options:
        _skip_ssl()
        _skip_slow_protobuf()
        import_module("sandmeshd.agent.boot.zygote").run(
            int(options["--zygote-fd"]), int(options.get("--user-namespace", -1))
        )
    for name, module in _STARTS.items():
        if name in options:
            import_module(f"sandmeshd.agent.boot.{module}").run(options[name])
    configured, account = False, None
    # An agent that waits needs it for its birth, and may have to serve with it then.
    needs_ssl = "--waits" in options
    if "--container" in options:
        options, control, configured, account = _enter_container(options)
    else:
        if "--become" in options:
            isolation.settle(*json.loads(options["--become"]))
        cgroup_fds = [int(fd) for fd in options.get("--cgroup-fds", "").split(",") if fd]
        if "--image" in options:
            control, account = _enter_image(options, cgroup_fds)
        else:
            control = fork_zygote(cgroup_fds)
    if "--tls" not in options and not needs_ssl:
        _skip_ssl()
    _skip_slow_protobuf()
    gc.disable()
    service = import_module("sandmeshd.agent.boot.service")
    gc.enable()
    memory, life = int(options.get("--memory-fd", -1)), int(options.get("--life-fd", -1))
    descriptors = service.AgentDescriptors(int(options["--config-fd"]), int(options["--ready-fd"]), memory, life)
    code: int = service.serve(descriptors, control, zygote_configured=configured, account=account)
    sys.stderr.flush()
    # The end of PID 1 ends all processes: worker threads are not waited for.
    os._exit(code)


def _enter_image(options: dict[str, str], cgroup_fds: list[int]) -> tuple[Any, Any]:
    """Fork the process that becomes the zygote in an image, and become user code's account."""
    entry: Any = import_module("sandmeshd.agent.boot.image.entry")
    try:
        image = entry.ImageEntry(json.loads(options["--image"]))
        account = image.account()
        control = fork_zygote(cgroup_fds, account=account, processes=image.processes)
        entry.become(account)
    except (OSError, ValueError) as error:
        os.write(int(options["--ready-fd"]), json.dumps({"error": str(error)}).encode() + b"\n")
        os._exit(1)
    return control, account


def _enter_container(options: dict[str, str]) -> tuple[dict[str, str], Any, bool, Any]:
    """Become the agent of a container, and user code's account where its image has no agent."""
    directory = options["--container"]
    if "--image" not in options:
        enter = import_module("sandmeshd.agent.boot.container").enter
        rest = (options.get(name, "") for name in ("--shut-in", "--born", "--waits"))
        return (*enter(directory, *rest), None)
    entry: Any = import_module("sandmeshd.agent.boot.image.container")
    try:
        rest = (options.get(name, "") for name in ("--shut-in", "--waits"))
        entered, control, account = entry.enter(directory, options["--image"], *rest)
    except (OSError, ValueError) as error:
        # A driver that shares the directory reads it there, the others in the log.
        sys.stderr.write(f"the agent cannot start: {error}\n")
        sys.stderr.flush()
        try:
            with open(f"{directory}/ready", "w", encoding="utf-8") as ready:  # noqa: PTH123 - pathlib is a slow import
                ready.write(json.dumps({"error": str(error)}) + "\n")
        finally:
            os._exit(1)
    return entered, control, False, account


def _skip_ssl() -> None:
    # asyncio works without ssl, which costs each sandbox 4 MB and 10 ms. uvloop reads its names but uses none of them.
    names: Any = sys.modules
    names["ssl"] = _NoSsl("ssl")
    import_module("uvloop")
    names["ssl"] = None  # the documented way to block an import
    # Python's own hashes are enough: this module would load all of OpenSSL to compare a token.
    names["_hashlib"] = None


def _skip_slow_protobuf() -> None:
    # The pure-Python implementation is imported beside the compiled one and never used: a tenth of the agent's imports.
    if import_module("google.protobuf.internal.api_implementation").Type() == "upb":
        name = "google.protobuf.internal.python_message"
        sys.modules.setdefault(name, ModuleType(name))


class _NoSsl(ModuleType):
    def __getattr__(self, name: str) -> object:
        return 0 if name.isupper() else type(name, (Exception,), {})


if __name__ == "__main__":
    main()
