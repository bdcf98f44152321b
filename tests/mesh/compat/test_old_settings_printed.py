"""A mesh started with the old documentation's file as it is printed there, in the working directory."""

from __future__ import annotations

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync
from tests.mesh.compat.test_old_settings import PASSWORD, SANDMESH, TOKEN, bare_environment, redis_server, started
from tests.ports import free_port

pytestmark = pytest.mark.needs("user namespaces")

AS_PRINTED = """
# Service settings
HOST="127.0.0.1"
PORT={port}
WORKERS=2
DEBUG=False
BEARER_TOKEN={token}

# Sandbox Manager settings
DEFAULT_SANDBOX_TYPE=base
POOL_SIZE=1
AUTO_CLEANUP=True
CONTAINER_PREFIX_KEY={mesh_id}-
CONTAINER_DEPLOYMENT=bubblewrap
DEFAULT_MOUNT_DIR=sessions_mount_dir
PORT_RANGE=[49152,59152]
MAX_SANDBOX_INSTANCES=0
HEARTBEAT_SCAN_INTERVAL=0

# Redis settings
REDIS_ENABLED=True
REDIS_SERVER=localhost
REDIS_PORT={redis}
REDIS_DB=0
REDIS_USER=default
REDIS_PASSWORD="{password}"
REDIS_PORT_KEY=_agent_runtime_container_occupied_ports
REDIS_CONTAINER_POOL_KEY=_agent_runtime_container_container_pool

# OSS settings
FILE_SYSTEM=local
OSS_ENDPOINT=http://oss-cn-hangzhou.aliyuncs.com
OSS_BUCKET_NAME=your-bucket-name

# K8S settings
K8S_NAMESPACE=default
KUBECONFIG_PATH=

FC_CPU=2.0
OPENAI_API_KEY=of-the-program-beside-it
"""


@pytest.mark.timeout(180)
async def test_their_file_as_printed_starts_a_mesh_from_the_working_directory(tmp_path: Path) -> None:
    mesh_id, port = f"test-{secrets.token_hex(5)}", free_port()
    async with asyncio.timeout(170), redis_server(tmp_path) as redis:
        file = AS_PRINTED.format(port=port, token=TOKEN, mesh_id=mesh_id, redis=redis, password=PASSWORD)
        async with started(tmp_path, file, mesh_id, ".env") as (process, log):
            assert process.stdout is not None
            ready: dict[str, Any] = json.loads(await process.stdout.readline() or b"{}")
            assert ready, log.read_text()[-2000:]
            async with BaseSandboxAsync(base_url=f"http://127.0.0.1:{port}", bearer_token=TOKEN) as box:
                assert (await box.run_ipython_cell(code="print('hi')")).text == "hi\n"
                assert "idle_timeout" not in await box.get_info()
            down = await asyncio.create_subprocess_exec(*SANDMESH, "down", env=bare_environment(), cwd=tmp_path)
            assert await down.wait() == 0
            await process.wait()
        events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    (dotenv,) = [event for event in events if "from a .env file" in event["event"]]
    (names,) = [event for event in events if "without SANDMESH_" in event["event"]]
    assert dotenv["file"] == names["file"] == str(tmp_path / ".env")
    assert "OPENAI_API_KEY" not in names["names"]
    ignored = {event["setting"] for event in events if event["event"] == "a setting is ignored"}
    assert ignored == {"SANDMESH_OSS_ENDPOINT", "SANDMESH_OSS_BUCKET_NAME", "SANDMESH_FC_CPU"}
