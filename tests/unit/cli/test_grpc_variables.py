"""What the commands ask of gRPC by the environment, before anything imports it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio
import os
import sandmeshd.cli
import grpc

async def serve():
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await server.stop(None)

asyncio.run(serve())
print(os.environ["GRPC_EXPERIMENTS"])
"""


def test_grpc_knows_what_the_commands_ask_of_it_and_writes_no_line_of_its_own() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("-event_engine_listener\n", "")


def test_what_the_environment_says_to_grpc_stays() -> None:
    environment = {**os.environ, "GRPC_EXPERIMENTS": "event_engine_listener"}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "event_engine_listener\n"
