"""Logging of services: JSON lines on standard error, or lines for a person where one looks; configured once.

Each line has `event`, `level`, `timestamp`, and what is in its context: `request_id`, and the ids that the request
names (`sandbox_id`, `session_id`, `session_key`, `call_id`). docs/observability.md lists them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import Processor

from sandmeshd.runtime.telemetry.redaction import without_secrets


class LossyStream:
    """Writes lines where it can; the first that is written again says how many were not."""

    def __init__(self, target: TextIO) -> None:
        self._target = target
        self.lost = 0
        """Lines since the last that was written."""

    def write(self, text: str) -> int:
        """Write a line, with the number of lost ones before it, or lose it."""
        gap = f"\n{_gap_line(self.lost)}\n" if self.lost else ""
        try:
            self._target.write(gap + text)
            # A text stream keeps what it could not write, and says so only when it is flushed.
            self._target.flush()
        except (OSError, ValueError):
            # ValueError: the stream is closed.
            self.lost += 1
        else:
            self.lost = 0
        return len(text)

    def flush(self) -> None:
        """Accept a flush: each line is flushed when it is written."""


def _gap_line(lost: int) -> str:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    words = {"lines": lost, "event": "lines of this log could not be written", "level": "warning", "timestamp": now}
    return json.dumps(words)


Form = Literal["auto", "json", "text"]

SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure_logging(level: str = "INFO", form: Form = "auto", stream: TextIO | None = None) -> None:
    """Write events of at least `level` to a stream, by default standard error, with the request's ids from context.

    `auto` is text where the stream is a terminal and JSON elsewhere. Lines of libraries that use Python's logging have
    the same form, from WARNING on. A line that cannot be written, as on a full disk, is lost without an error.
    """
    target = stream or sys.stderr
    last = _last(form == "text" or (form == "auto" and target.isatty()), colors=target.isatty())
    enduring = cast("TextIO", LossyStream(target))
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*SHARED, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=enduring),
        cache_logger_on_first_use=True,
    )
    _adopt_libraries(enduring, last, max(number, logging.WARNING))


def _last(text: bool, *, colors: bool) -> tuple[Processor, ...]:
    if text:
        plain = structlog.dev.plain_traceback
        renderer: Processor = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain, pad_event_to=0)
    else:
        renderer = structlog.processors.JSONRenderer()
    return structlog.processors.format_exc_info, without_secrets, renderer


def _adopt_libraries(target: TextIO, last: tuple[Processor, ...], level: int) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*SHARED, structlog.stdlib.add_logger_name],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
