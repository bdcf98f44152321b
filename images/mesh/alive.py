"""Whether a service answers at an address: `alive.py HOST:PORT|unix:PATH [METHOD]`, with 0 where it does.

A method is called with an empty request: one that needs what is behind the service shows that this answers, too.
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

with grpc.insecure_channel(sys.argv[1]) as channel:
    answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3)
    for method in sys.argv[2:]:
        channel.unary_unary(method)(b"", timeout=3)
sys.exit(answer.status != health_pb2.HealthCheckResponse.SERVING)
