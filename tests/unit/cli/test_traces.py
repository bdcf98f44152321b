"""Whether a service records traces, as the environment says, and how many of those that callers ask for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.trace_sampler import BoundedSampler
from sandmeshd.cli.config.traces import configure_traces


def test_callers_have_no_more_recorded_than_there_may_be() -> None:
    tracer = TracerProvider(sampler=BoundedSampler(5)).get_tracer("test")
    caller = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    within = set_span_in_context(NonRecordingSpan(caller))
    recorded = [tracer.start_span("call", within).is_recording() for _ in range(500)]
    assert recorded[:5] == [True] * 5
    assert sum(recorded) < 50
    # What the program begins itself is the sampler's alone.
    assert all(tracer.start_span("own").is_recording() for _ in range(50))


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]
)
def test_what_there_is_not_is_refused_by_name(variable: str, value: str) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", variable: value}
    with pytest.raises(InvalidArgument, match=f"{variable} is .* not '{value}'"):
        configure_traces("sandmesh", 100, environment)


@pytest.mark.parametrize(
    ("environment", "loads"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_a_service_loads_opentelemetry_only_where_it_records(environment: dict[str, str], loads: bool) -> None:
    program = (
        "import sys; from sandmeshd.cli.config.traces import configure_traces; "
        f"configure_traces('sandmesh', 100, {environment!r}); print('opentelemetry.trace' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(loads)
