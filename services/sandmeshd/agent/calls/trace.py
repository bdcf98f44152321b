"""A call's place in a trace: how long its work took there, and what programs that it runs learn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandmesh.api.call.v1 import call_pb2 as pb


class CallPlace:
    """The place of a call that is a part of a trace."""

    def __init__(self, trace: pb.TraceContext) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._trace = trace

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return self._loop.time() - self._began

    @property
    def variables(self) -> Mapping[str, str]:
        """What the programs that it runs have as variables: none, unless its caller asks for it."""
        if not self._trace.into_processes:
            return {}
        variables = {"TRACEPARENT": self._trace.traceparent, "TRACESTATE": self._trace.tracestate}
        return {name: value for name, value in variables.items() if value}
