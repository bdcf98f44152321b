"""Programs of one command whose options may be written with underscores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer


def _with_dashes(name: str) -> str:
    return name.replace("_", "-")


UNDERSCORES: Final[dict[str, Any]] = {"token_normalize_func": _with_dashes}
"""Settings of a command by which `--base_url` is `--base-url`."""


def single_command(command: Callable[..., None], epilog: str) -> typer.Typer:
    """Return a program that is one command, its options with dashes or underscores."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    settings = {**UNDERSCORES, "help_option_names": ["-h", "--help"]}
    app.command(context_settings=settings, epilog=epilog)(command)
    return app
