"""The classes of the built-in sandbox types: those that are written out, and those made from the table of types."""

from __future__ import annotations

from functools import cache
from typing import cast

from sandmesh.sandbox import boxes, sync
from sandmesh.sandbox.boxes import BaseSandboxAsync
from sandmesh.sandbox.dummy import DummySandbox
from sandmesh.sandbox.sync import BaseSandbox
from sandmesh.sandbox.tools import tool_groups
from sandmesh.sandbox.training import boxes as training
from sandmesh.shared.sandbox_types import SANDBOX_TYPES, class_name


@cache
def sync_class(sandbox_type: str) -> type[BaseSandbox]:
    """Return the sync class of a type, BaseSandbox to type-checkers; for one that is not built in, BaseSandbox."""
    if not SANDBOX_TYPES.get(sandbox_type):
        return BaseSandbox
    name = class_name(sandbox_type, is_async=False)
    made = _written(name) or type(
        name,
        (BaseSandbox, *_mixins(sandbox_type)),
        {"__doc__": f"A sandbox of the type {sandbox_type}.", "twin_class": async_class(sandbox_type)},
    )
    return cast("type[BaseSandbox]", made)


@cache
def async_class(sandbox_type: str) -> type[BaseSandboxAsync]:
    """Return the async class of a type; for one that is not built in, BaseSandboxAsync."""
    if not SANDBOX_TYPES.get(sandbox_type):
        return BaseSandboxAsync
    name = class_name(sandbox_type, is_async=True)
    made = _written(name) or type(
        name,
        (BaseSandboxAsync, *_mixins(sandbox_type)),
        {"__doc__": f"A sandbox of the type {sandbox_type}.", "default_type": sandbox_type},
    )
    return cast("type[BaseSandboxAsync]", made)


def builtin_classes(sandbox_type: str) -> tuple[type, ...]:
    """Return the classes of a built-in type, the sync one first."""
    return (sync_class(sandbox_type), async_class(sandbox_type)) if SANDBOX_TYPES[sandbox_type] else (DummySandbox,)


def class_named(name: str) -> type | None:
    """Return the built-in class of a name, None if there is no such type."""
    types = [one for one, groups in SANDBOX_TYPES.items() if groups]
    made: dict[str, type] = {class_name(kind, is_async=False): sync_class(kind) for kind in types}
    made |= {class_name(kind, is_async=True): async_class(kind) for kind in types}
    return made.get(name)


def _written(name: str) -> type | None:
    """Return the class of that name that is written out, None if there is none."""
    found: type | None = next((getattr(one, name) for one in (sync, boxes, training) if hasattr(one, name)), None)
    return found


def _mixins(sandbox_type: str) -> list[type]:
    mixins = [tool_groups.MIXINS[group] for group in SANDBOX_TYPES[sandbox_type]]
    return [mixin for mixin in mixins if not issubclass(BaseSandbox, mixin)]
