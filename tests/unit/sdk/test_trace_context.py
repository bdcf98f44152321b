"""What is read of a peer's place in a trace, and what programs that record none send on."""

from __future__ import annotations

import pytest

from sandmesh.shared.traces.context import (
    MOST_STATE,
    RemoteTrace,
    current_trace,
    metadata_of,
    passing_on,
    read_trace,
    span_of,
    start_span,
    step_of,
)

PARENT = f"00-{'a1' * 16}-{'b2' * 8}-01"


@pytest.mark.parametrize(
    "sent",
    [
        "",
        None,
        PARENT + "\n",
        PARENT.upper(),
        f"00-{'0' * 32}-{'b2' * 8}-01",
        f"00-{'a1' * 16}-{'0' * 16}-01",
        f"ff-{'a1' * 16}-{'b2' * 8}-01",
        PARENT + "-more",
        PARENT.replace("a1", "g1"),
        "00-" + "a" * 10_000_000,
        PARENT.encode(),
    ],
)
def test_what_is_not_a_traceparent_is_taken_for_none(sent: object) -> None:
    assert read_trace(sent) is None


@pytest.mark.parametrize("state", ["x" * (MOST_STATE + 1), "a=1\r\nx-token: 2", "a=é", b"a=1", None])
def test_a_tracestate_that_is_too_long_or_no_text_is_left_out(state: object) -> None:
    assert read_trace(PARENT, state) == RemoteTrace(PARENT)
    assert read_trace(PARENT, "a=1,b=2") == RemoteTrace(PARENT, "a=1,b=2")


def test_a_program_that_records_nothing_sends_on_what_it_received_and_no_more() -> None:
    remote = RemoteTrace(PARENT, "a=1")
    assert current_trace() is None
    with span_of("an RPC", remote=remote) as span, step_of("a step"):
        assert span is None
        assert start_span("another") is None
        assert metadata_of(current_trace()) == (("traceparent", PARENT), ("tracestate", "a=1"))
    with passing_on(RemoteTrace(PARENT)):
        assert metadata_of(current_trace()) == (("traceparent", PARENT),)
    assert metadata_of(current_trace()) == ()
