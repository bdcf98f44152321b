"""The recording of traces by a service, as OpenTelemetry's own variables say.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import structlog

from sandmesh.errors import InvalidArgument

log = structlog.get_logger()

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_EXPORTERS = {
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}
"""The module of each protocol's exporter."""


def configure_traces(service: str, most_per_second: float, environment: Mapping[str, str] | None = None) -> None:
    """Record the traces of this process where the environment names a collector; they are sent until it ends.

    Where a package is missing that this needs, a line of the log says so: such variables are often set for all programs
    of a machine.

    Raises:
        InvalidArgument: A variable names an exporter or a protocol that there is not.
    """
    environment = os.environ if environment is None else environment
    if not _is_wanted(environment):
        return
    name = next((environment[one] for one in PROTOCOLS if environment.get(one)), "grpc")
    if name not in _EXPORTERS:
        raise InvalidArgument(f"{PROTOCOLS[1]} is {' or '.join(_EXPORTERS)}, not {name!r}", {"argument": PROTOCOLS[1]})
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        sampler = import_module("sandmeshd.cli.config.trace_sampler").BoundedSampler(most_per_second)
        exporter = import_module(_EXPORTERS[name]).OTLPSpanExporter()
    except ModuleNotFoundError as error:
        package = "opentelemetry-exporter-otlp-proto-http" if name != "grpc" else '"sandmesh[otel]"'
        fix = f"pip install {package}"
        log.warning("no traces are recorded: a package is not installed", package=error.name, fix=fix)
        return
    provider: Any = sdk.TracerProvider(sampler=sampler, resource=_resource(service, environment))
    provider.add_span_processor(import_module("opentelemetry.sdk.trace.export").BatchSpanProcessor(exporter))
    import_module("opentelemetry.trace").set_tracer_provider(provider)
    log.info("traces are recorded", exporter="otlp", protocol=name)


def _is_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(EXPORTER, "").strip()
    if exporter not in ("", "none", "otlp"):
        raise InvalidArgument(f"{EXPORTER} is otlp or none, not {exporter!r}", {"argument": EXPORTER})
    return exporter == "otlp" or (not exporter and any(environment.get(one) for one in ENDPOINTS))


def _resource(service: str, environment: Mapping[str, str]) -> Any:
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return import_module("opentelemetry.sdk.resources").Resource.create({} if named else {"service.name": service})
