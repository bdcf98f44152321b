"""RUN's `--mount`, as the Dockerfile reference has it: caches, files of the build or of stages, secrets, memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandmeshd.images.builds.state import State
from sandmeshd.images.dockerfile import ParsedInstruction

_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "bind": frozenset({"target", "source", "from", "readonly"}),
    "cache": frozenset({"target", "id", "sharing", "uid", "gid", "mode"}),
    "secret": frozenset({"target", "id", "required", "uid", "gid", "mode", "env"}),
    "tmpfs": frozenset({"target", "size"}),
}
_SAME: Final = {"dst": "target", "destination": "target", "src": "source", "ro": "readonly"}
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "b": 1, "": 1}


@dataclass(frozen=True)
class BuildMount:
    """One mount."""

    kind: str
    values: Mapping[str, str]
    one: ParsedInstruction

    def text(self, name: str, default: str = "") -> str:
        """Return a value."""
        return self.values.get(name, default)

    def number(self, name: str, default: int, base: int = 10) -> int:
        """Return a number.

        Raises:
            InvalidArgument: It is not one.
        """
        try:
            return int(self.values[name], base) if name in self.values else default
        except ValueError:
            raise self.one.refuse(f"{name}={self.values[name]} is not a number") from None

    @property
    def size(self) -> int:
        """The bytes of a tmpfs, 0 where it is not stated."""
        text = self.text("size").lower()
        digits = text.rstrip("kmgb")
        unit = text[len(digits) :][:1]
        if text and (not digits.isdecimal() or unit not in _SIZES):
            raise self.one.refuse(f"size={text} is not a size")
        return int(digits) * _SIZES[unit] if text else 0

    @property
    def owned(self) -> dict[str, Any]:
        """The owner and mode of a cache or a secret."""
        mode = self.number("mode", 0o755 if self.kind == "cache" else 0o400, 8)
        return {"uid": self.number("uid", 0), "gid": self.number("gid", 0), "mode": mode}


def read_mount(one: ParsedInstruction, state: State, text: str) -> BuildMount:
    """Read what follows `--mount=`.

    Raises:
        InvalidArgument: It is not valid, or not supported.
    """
    values: dict[str, str] = {}
    for part in next(csv.reader(io.StringIO(text)), list[str]()):
        name, _, value = part.partition("=")
        name = name.lower()
        values[_SAME.get(name, name)] = state.expand(one, value)
    kind = values.pop("type", "bind")
    if kind not in _NAMES:
        raise one.refuse(f"a mount of type {kind} is not supported: use {', '.join(sorted(_NAMES))}")
    unknown = values.keys() - _NAMES[kind]
    if unknown:
        raise one.refuse(f"{min(unknown)} of a mount of type {kind} is not supported")
    if values.get("sharing", "shared") not in ("shared", "locked"):
        raise one.refuse(f"sharing={values['sharing']} is not supported: use shared or locked")
    if kind != "secret" and not values.get("target"):
        raise one.refuse("a mount needs a target")
    if "target" in values:
        values["target"] = state.place(values["target"]).rstrip("/") or "/"
    if values.get("target") == "/":
        raise one.refuse("the target of a mount cannot be /")
    return BuildMount(kind, values, one)
