"""Installs a template's Python as its file says: `install.py ENVIRONMENT TARGET [requirements|programs]`.

`install.py trim FOLDER` leaves out of installed packages what nobody reads at run time, and `install.py share FOLDER
OTHER` keeps libraries once that are the same in both, below the first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PIP = ("--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--no-compile")
UNREAD = (
    *("tests/**/test_*.py", "tests/**/*.csv", "tests/**/*.pyi", "*.c", "*.pyx", "*.exe", "include/node"),
    # Whole, where nothing else imports a part of them.
    *("pandas/tests", "numpy/f2py/tests", "numpy/typing/tests", "matplotlib/mpl-data/sample_data"),
    # Beside the same in Python, for whoever edits fonts.
    "fontTools/**/*.so",
    # It takes a setuptools of before 2022, and a compiler.
    "numpy/distutils",
    # Completion knows the standard library and what is installed without these.
    *("jedi/third_party/typeshed/stubs", "jedi/third_party/django-stubs"),
)
"""What nobody reads at run time. Other modules of tests stay: numpy.testing imports one."""

_RARELY = (
    *("fontTools", "pygments/lexers/(?!_|python)", "pygments/styles/(?!_|default)", "wcwidth/table_grapheme_overrides"),
    *("numpy/f2py", "mpl_toolkits", "matplotlib/(?:sphinxext|testing|tests)"),
    "matplotlib/backends/(?:_backend_(?:gtk|tk)|qt_editor|backend_(?:cairo|gtk|macosx|nbagg|pgf|ps|qt|tk|web|wx))",
    *("IPython/(?:sphinxext|testing)", "prompt_toolkit/contrib", "pandas/core/_numba", "pandas/io/sas"),
    *("pydantic", "packaging/licenses", "pip/_vendor/pkg_resources", "urllib3/contrib/emscripten"),
    *("psutil/_ps(?:aix|bsd|osx|sunos|windows)", "contourpy/util"),
)
RARE = "|".join(f"/{name}" for name in _RARELY)
"""Modules that are compiled whenever they are imported: windows, rare formats, and the syntax of other languages."""


def main() -> None:
    """Make the environment, compile it, and fill caches in what becomes each sandbox's home."""
    environment = Path(sys.argv[1])
    described = (json if environment.suffix == ".json" else tomllib).loads(environment.read_text())
    target, part = Path(sys.argv[2]), (*sys.argv[3:], "requirements")[0]
    wanted = Path("/tmp/requirements.txt")  # noqa: S108 - of the build
    # A description in JSON is that of an image on top of `base`.
    fonts: list[str] = described.get("fonts", []) if environment.suffix == ".json" else []
    wanted.write_text("\n".join([*described[part], *fonts]) + "\n")
    python = str(target / "bin" / "python")
    pip = [python, "-m", "pip", "install", *PIP, "--root-user-action", "ignore", "--only-binary", ":all:"]
    if described.get("complete"):
        pip.append("--no-deps")
    subprocess.run([*pip, "-r", str(wanted)], check=True)
    wanted.unlink()
    trim(target)
    # It is read-only in sandboxes.
    compiled = [python, "-m", "compileall", "-q", "-j", "0", "-x", RARE, str(target / "lib")]
    subprocess.run(compiled, check=False)
    home = target / "home"
    home.mkdir(exist_ok=True)
    variables = {**os.environ, **described.get("variables", {}), "HOME": str(home)}
    subprocess.run([python, "-c", described.get("warm_up", "")], env=variables, check=True)
    shutil.rmtree("/root/.cache", ignore_errors=True)
    subprocess.run(["chmod", "-R", "a+rX", str(home)], check=True)  # noqa: S607 - of the image


def trim(folder: Path) -> None:
    """Remove packages' own tests, sources of compiled modules and programs of other systems, and debuggers' symbols."""
    for pattern in UNREAD:
        for path in [*folder.rglob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if shutil.which("strip") is None:
        return
    libraries = [path for path in folder.rglob("*.so") if not path.is_symlink() and not is_rewritten(path)]
    subprocess.run(["strip", "--strip-unneeded", *map(str, libraries)], check=True)  # noqa: S607 - of the image


def share(folder: Path, other: Path) -> None:
    """Replace libraries of `other` that are the same in `folder` by links to those."""
    for library in folder.rglob("*.so"):
        for same in other.rglob(library.name):
            if not same.is_symlink() and same.read_bytes() == library.read_bytes():
                same.unlink()
                same.symlink_to(library)


def is_rewritten(library: Path) -> bool:
    """Return whether a library was rewritten to find those that its package brings, which `strip` would spoil."""
    return library.parent.suffix == ".libs" or b"$ORIGIN" in library.read_bytes()


if sys.argv[1] == "trim":
    trim(Path(sys.argv[2]))
elif sys.argv[1] == "share":
    share(Path(sys.argv[2]), Path(sys.argv[3]))
else:
    main()
