"""What a client hears of a call's progress."""

from __future__ import annotations

from sandmesh import Output, Progress
from sandmeshd.facades.mcp.progress import LONGEST_TEXT, Reporter, progress_reporter

Heard = list[tuple[float, float | None, str | None]]


async def test_the_number_rises_even_where_the_tools_own_falls() -> None:
    heard: Heard = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    reporter = Reporter(report)
    for progress in (5.0, 5.0, 1.0, 6.0):
        reporter.receive(Progress(progress, 10.0, "at work"))
        await reporter.report()
    numbers = [progress for progress, _, _ in heard]
    assert numbers == sorted(set(numbers))
    assert heard[0] == (5.0, 10.0, "at work")
    assert heard[-1] == (6.0, 10.0, "at work")


async def test_what_a_tool_reports_quickly_is_told_one_by_one() -> None:
    heard: Heard = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with progress_reporter(report) as receive:
        for progress in (0.0, 50.0, 100.0):
            receive(Progress(progress, 100.0, ""))
    assert [round(progress) for progress, _, _ in heard] == [0, 50, 100]


async def test_much_output_is_told_of_seldom_and_by_its_end() -> None:
    heard: Heard = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with progress_reporter(report) as receive:
        for _ in range(10_000):
            receive(Output("stdout", b"12345678\n", "12345678\n"))
    assert len(heard) == 1
    progress, total, message = heard[0]
    assert (progress, total) == (90_000.0, None)
    assert message is not None
    assert len(message) == LONGEST_TEXT
