"""The sandbox's own layer of Python packages: a virtual environment over the template's, which is read-only.

It is where VIRTUAL_ENV says, made when first needed. Its interpreter sees its own packages first, then the template's
and pip and uv install into it and do not touch the template's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"lib/{_VERSION}/site-packages"
TEMPLATE = "_template.pth"
_START = "lib/pip_start.py"
_WATCH = "import runpy; runpy.run_path({start!r})['watch']({layer!r}, {packages!r})"
_PIP = """#!{layer}/bin/python
import sys
{watch}
from pip._internal.cli.main import main
sys.exit(main())
"""


def make(environment: Mapping[str, str]) -> None:
    """Make the layer that an environment names, unless it is there or is the template's own environment.

    Where it cannot be made there is none: what needs it says so itself.
    """
    layer = environment.get("VIRTUAL_ENV", "")
    if not layer.startswith("/") or layer == sys.prefix or os.path.lexists(f"{layer}/pyvenv.cfg"):
        return
    # Complete or not there: others may be making it at the same moment.
    fresh = f"{layer}.{os.getpid()}"
    with suppress(OSError):
        _fill(fresh, layer)
        try:
            os.rename(fresh, layer)  # noqa: PTH104 - pathlib is a slow import, here and below
        except OSError:
            # What was removed in part, or made by another program, gets what it lacks.
            _complete(fresh, layer)
            _remove(fresh)


def _fill(fresh: str, layer: str) -> None:
    os.makedirs(f"{fresh}/{PACKAGES}")  # noqa: PTH103
    os.mkdir(f"{fresh}/bin")  # noqa: PTH102
    for name in ("python", "python3", _VERSION):
        os.symlink(f"{sys.prefix}/bin/python", f"{fresh}/bin/{name}")  # noqa: PTH211
    watch = _WATCH.format(start=f"{layer}/{_START}", layer=layer, packages=f"{layer}/{PACKAGES}")
    for name in ("pip", "pip3"):
        _write(f"{fresh}/bin/{name}", _PIP.format(layer=layer, watch=watch), 0o755)
    with open(f"{os.path.dirname(__file__)}/pip_start.py", encoding="utf-8") as file:  # noqa: PTH120, PTH123
        _write(f"{fresh}/{_START}", file.read())
    by_module = f"import sys; sys.orig_argv[1:3] == ['-m', 'pip'] and exec({watch!r})\n"
    _write(
        f"{fresh}/{PACKAGES}/{TEMPLATE}", f"import site; site.addsitedir({sys.prefix + '/' + PACKAGES!r})\n{by_module}"
    )
    with open(f"{sys.prefix}/pyvenv.cfg", encoding="utf-8") as file:  # noqa: PTH123
        _write(f"{fresh}/pyvenv.cfg", file.read())


def _complete(fresh: str, layer: str) -> None:
    for root, _, names in os.walk(fresh):
        place = layer + root[len(fresh) :]
        os.makedirs(place, exist_ok=True)  # noqa: PTH103
        for name in names:
            if not os.path.lexists(f"{place}/{name}"):
                os.rename(f"{root}/{name}", f"{place}/{name}")  # noqa: PTH104


def _write(path: str, text: str, mode: int = 0o644) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _remove(fresh: str) -> None:
    for root, folders, names in os.walk(fresh, topdown=False):
        for name in names:
            os.unlink(f"{root}/{name}")  # noqa: PTH108
        for name in folders:
            os.rmdir(f"{root}/{name}")  # noqa: PTH106
    os.rmdir(fresh)  # noqa: PTH106
