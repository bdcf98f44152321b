"""A progress bar on standard error."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Report = Callable[[str, float], None]


@contextmanager
def progress_bar() -> Generator[Report]:
    """Yield a function of (message, fraction); the bar appears with its first call and is removed at the end.

    Where standard error is not a terminal, each new message is a line instead.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        state: dict[str, str] = {}
        task = bar.add_task("starting", total=None, visible=False)

        def report(message: str, fraction: float) -> None:
            bar.update(task, description=message, completed=max(fraction, 0.0), visible=True)
            if fraction >= 0:
                bar.update(task, total=1.0)
            if not console.is_terminal and state.get("last") != message:
                console.print(message, highlight=False)
            state["last"] = message

        yield report
