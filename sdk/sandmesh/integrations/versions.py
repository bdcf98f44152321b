"""Which versions of a framework an adapter works with: those that this package's extra asks for."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

# As in `langchain<2,>=1.2; extra == 'langchain'`.
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(\[[^]]*\])?(?P<bounds>[^;]*);.*\bextra == ['\"](?P<extra>[\w-]+)['\"]"
)
_OF_EVERYTHING: Final = {"dev", "release", "all"}


@dataclass(frozen=True)
class _Wanted:
    package: str
    bounds: str
    extra: str

    def admits(self, version: str) -> bool:
        """Whether a version is within the bounds."""
        found = _numbers(version)
        for bound in filter(None, self.bounds.replace(" ", "").split(",")):
            number = _numbers(bound)
            if (bound.startswith(">=") and found < number) or (bound.startswith("<") and found >= number):
                return False
        return True


@contextmanager
def framework(package: str) -> Generator[None]:
    """Import the names of a framework, by its name on PyPI, in this block.

    Raises:
        ImportError: It is not installed, is older or newer than the adapter works with, or lacks one of the names.
    """
    wanted = _wanted(package)
    install = f'pip install "sandmesh[{wanted.extra}]"' if wanted else f"pip install {package}"
    version = _installed(package)
    if wanted and version and not wanted.admits(version):
        said = f"this adapter works with {package}{wanted.bounds}, and {version} is installed: {install}"
        raise ImportError(said, name=package)
    try:
        yield
    except ImportError as error:
        state = f"{package} {version} lacks what this adapter imports" if version else f"{package} is not installed"
        raise ImportError(f"{state} ({error}): {install}", name=package) from error


def _wanted(package: str) -> _Wanted | None:
    try:
        requirements = importlib.metadata.requires("sandmesh") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [match for match in map(_REQUIREMENT.match, requirements) if match]
    mine = [match for match in found if match["name"] == package and match["extra"] not in _OF_EVERYTHING]
    return next((_Wanted(package, match["bounds"].strip(), match["extra"]) for match in mine), None)


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
