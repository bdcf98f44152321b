"""What a template is."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class PythonEnvironment(BaseModel):
    """The Python packages of user code."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    requirements: tuple[str, ...]
    """As pip takes them, each pinned."""

    warm_up: str = ""
    """A statement that fills caches when the environment is built, run as code of a sandbox is."""

    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables that user code gets because of these packages."""


class Template(BaseModel):
    """One kind of sandbox."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")
    """What callers name it by."""

    description: str
    """What it is good for, in a sentence."""

    tool_groups: tuple[str, ...] = Field(min_length=1)
    """Groups of tools that its agent offers."""

    python: PythonEnvironment
    """Its Python."""

    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables of user code, on top of those of `python`."""

    network: Literal["none", "public", "packages"] | tuple[str, ...] = "none"
    """What a sandbox may reach when its creator does not say: one word, or hosts and perhaps "public"."""

    mcp_config: str = ""
    """MCP servers that its sandboxes have, as JSON with `mcpServers`; empty for none."""

    @property
    def generation(self) -> str:
        """A hash that changes with anything in the template."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]
