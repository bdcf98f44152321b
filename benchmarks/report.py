"""How the benchmarks' command lines and tables look."""

from __future__ import annotations

import argparse
import os
import platform

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure


def arguments(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser for `python -m PROGRAM`, with the option that all have."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m {program}", description=description, formatter_class=raw)
    parser.add_argument("--markdown", action="store_true", help="print the table as a page has it")
    return parser


def show(found: list[Figure], title: str, *, as_markdown: bool) -> None:
    """Print the figures."""
    if as_markdown:
        print(markdown(found, title))
    else:
        Console().print(table(found, title))


def machine() -> str:
    """Return what the figures were measured on, and how busy it was."""
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    load = os.getloadavg()[0]
    system = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    return f"{system}, as {user}, load average {load:.1f}"


def table(found: list[Figure], title: str) -> Table:
    """Lay the figures out."""
    made = Table("what", "measured", "aim", title=title, title_justify="left")
    for figure in found:
        made.add_row(figure.what, figure.measured, figure.aim)
    return made


def markdown(found: list[Figure], title: str) -> str:
    """Return the figures as a page has them."""
    rows = [f"| {_indented(figure.what)} | {figure.measured} | {figure.aim} |" for figure in found]
    return "\n".join([f"{title}:", "", "| what | measured | aim |", "| --- | --- | --- |", *rows])


def _indented(what: str) -> str:
    return "&nbsp;" * (len(what) - len(what.lstrip())) + what.lstrip()
