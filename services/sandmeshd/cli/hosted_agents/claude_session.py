"""What runs in a sandbox for one work item of Claude Managed Agents: the vendor's own runner of a session's tools.

The worker starts it by its source, with the variables that the runner reads. The token in its environment is a
placeholder, which the egress proxy replaces in requests to the API.
"""

import asyncio
import base64
import json
import logging
import os

from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker

TOKEN = "SANDMESH_WORK_TOKEN"  # noqa: S105 - the name of a variable


async def main() -> None:
    """Run the tools that the session asks for, until it has been idle for a minute or its lease ends."""
    token = os.environ.pop(TOKEN)
    if os.environ.pop("SANDMESH_WORK_TOKEN_OF") == "session":
        secret = base64.urlsafe_b64encode(json.dumps({"sessions_token": token}).encode()).decode()
        os.environ["ANTHROPIC_WORK_SECRET"] = secret
    else:
        os.environ["ANTHROPIC_ENVIRONMENT_KEY"] = token
    async with AsyncAnthropic(auth_token=token) as client:
        await EnvironmentWorker(client).handle_item()


logging.basicConfig(level=logging.INFO, format="%(message)s")
# Each request's address, which the runner's own lines say better.
logging.getLogger("httpx2").setLevel(logging.WARNING)
asyncio.run(main())
