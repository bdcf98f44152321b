"""Blocks of code in the pages that need no more than a sandbox are run as they stand there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from scripts.blocks.blocks import blocks, fate_of
from scripts.blocks.rules import PAGE_BLOCKS, RULES

from tests.mesh.conftest import MeshMaker

# Each block has what its page speaks of: a box, and a file of a table in it.
PROGRAM = """
import json, pathlib, sys
import sandmesh

for place, code in json.load(sys.stdin):
    names = {name: getattr(sandmesh, name) for name in sandmesh.__all__ if name != "tools"}
    with sandmesh.FilesystemSandbox() as names["box"]:
        names["box"].fs.write("data.csv", "a,b\\n1,2\\n")
        try:
            # Functions of a block are shipped with their source.
            file = pathlib.Path(place.replace("/", "-") + ".py")
            file.write_text(code)
            exec(compile(code, str(file.absolute()), "exec"), names)
        except Exception as error:
            sys.exit(f"{place}: {type(error).__name__}: {error}")
    print("ran", place)
"""


async def test_blocks_run_as_they_stand_in_their_pages(make_mesh: MeshMaker, tmp_path: Path) -> None:
    found = [block for block in blocks() if (fate := fate_of(block, RULES)) and fate.test == PAGE_BLOCKS]
    assert len(found) >= 13
    async with make_mesh() as mesh:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "SANDMESH_ADDRESS": mesh.addresses[0]},
        )
        sent = json.dumps([(f"{block.page}:{block.line}", block.code) for block in found]).encode()
        out, err = await process.communicate(sent)
    assert process.returncode == 0, err.decode()
    assert out.decode().count("ran docs/") == len(found)
