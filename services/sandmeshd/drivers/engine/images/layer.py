"""The image of a template with its own packages: a layer on the image that the other templates share."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from sandmeshd.drivers.node import agent_sources
from sandmeshd.templates import Template

PACKAGES = "packages"
"""The folder of its Dockerfile."""
INSTALLER = "images/base/install.py"
_SYSTEM_FONT, _SAME_SCRIPTS = "fonts-wqy-microhei", "noto-cjk-"
"""What browsers show Chinese, Japanese and Korean with, and Python's package for the same: an image has one of them."""


@dataclass(frozen=True)
class UpperLayer:
    """What an image has on top of another one."""

    template: Template
    base: str
    """The image below, by the name of its folder."""
    with_python: bool
    """Whether its Python packages are others than those of the image below."""

    @property
    def system(self) -> str:
        """The Debian packages, a line each."""
        return "".join(f"{name}\n" for name in self.template.system)

    @property
    def environment(self) -> str:
        """The Python environment as JSON, empty where it is that of the image below."""
        if not self.with_python:
            return ""
        described = self.template.python.model_dump(mode="json")
        if _SYSTEM_FONT in self.template.system:
            described["fonts"] = [package for package in described["fonts"] if not package.startswith(_SAME_SCRIPTS)]
        return json.dumps(described)

    def sources(self, below: str) -> str:
        """Return the hash of what it is built from, with that of the image below."""
        return hashlib.sha256(f"{below} {self.base} {self.system} {self.environment}".encode()).hexdigest()[:20]

    def fill_context(self, context: Path, images: Path) -> Path:
        """Write what its Dockerfile reads into a folder; return the folder."""
        agent_sources.copy_files([(images / "base" / "install.py", INSTALLER)], context)
        lists = context / "template"
        lists.mkdir()
        (lists / "system").write_text(self.system)
        (lists / "environment.json").write_text(self.environment)
        unread = images / PACKAGES / f"{self.template.name}.unread"
        (lists / "unread").write_text(unread.read_text() if unread.exists() else "")
        return context
