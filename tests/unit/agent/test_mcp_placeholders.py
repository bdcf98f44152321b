"""What the MCP client process has in place of a library that only servers use."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from sandmeshd.agent.mcp.client import placeholders
placeholders.install()
import sandmeshd.agent.mcp.client.sessions
from mcp.server import request_state
found = [module for name, module in sys.modules.items() if name.partition(".")[0] == "cryptography"]
print(len(found) > 0, {getattr(module, "__file__", None) for module in found})
try:
    request_state.AESGCM(b"key")
except RuntimeError as error:
    print(error)
"""


def test_a_client_of_mcp_starts_without_the_library_that_only_its_servers_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "True {None}",
        "cryptography.hazmat.primitives.ciphers.aead.AESGCM is not in the MCP client process",
    ]
