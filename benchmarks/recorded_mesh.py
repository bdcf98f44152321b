"""`python -m benchmarks.recorded_mesh up ...`: `sandmesh`, with recorders in its process and in its sandboxes' agents.

Agents run a copy of the code whose `__main__.py` installs a recorder before it imports anything else: a hook that is
only there where this program builds the copy, in a cache directory of its own key.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks import recorder
from benchmarks.recorder import Recorder
from sandmeshd.cli.user import main
from sandmeshd.drivers.node import agent_sources

AGENT_REPORT = "/workspace/.entered.json"
MESH_REPORT = "BENCHMARKS_MESH_REPORT"
"""The variable that names the file in which the mesh's process reports what was entered."""
_AGENT_HOOK = f"""
recorder = Recorder()
recorder.follow_signals(lambda: {AGENT_REPORT!r})
recorder.install()
"""


def run() -> None:
    """Run `sandmesh` with this process's arguments."""
    source = Path(recorder.__file__).read_text()
    agent_sources.MAIN = f"{source}\n{_AGENT_HOOK}\n{agent_sources.MAIN.replace('from __future__', '#')}"
    own = Recorder()
    own.follow_signals(lambda: os.environ[MESH_REPORT])
    own.install()
    main()


if __name__ == "__main__":
    run()
