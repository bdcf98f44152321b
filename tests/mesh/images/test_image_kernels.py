"""Kernels of sandboxes whose image has a Python with IPython: that one runs them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.boxes import BaseSandboxAsync
from sandmeshd.runtime.paths import default_state_directory
from tests.image_layouts import file_entry, make_tar
from tests.image_roots import host_root, python_root
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import mesh_with

pytestmark = [pytest.mark.needs("uids for sandboxes")]

WHO = "import sys; print(sys.executable, sys.prefix, 'sandmesh' in sys.modules, sys.path[0] == '')"
SHOWN = """
from IPython.display import HTML, display
display(HTML("<b>bold</b>"))
print(input("name? "))
raise ValueError("last")
"""


def _packages() -> Path:
    found = (default_state_directory() / "cache" / "environments").glob("*/lib/python3*/site-packages/IPython")
    place = next(found, None)
    if place is None:
        pytest.skip("no template's environment was built here")
    return place.parent


async def test_kernels_run_by_the_images_own_python_where_it_has_ipython(make_mesh: MeshMaker) -> None:
    python, packages = python_root(_packages())
    with tarfile.open(fileobj=io.BytesIO(packages)) as archive:
        init = next(name for name in archive.getnames() if name.endswith("/IPython/__init__.py"))
    own = "/usr/local/bin/python3" if init.startswith("usr/local/") else "/usr/bin/python3"
    broken = make_tar(file_entry(init, b"raise OSError('too old')"))
    host, path = host_root(), {"Env": ["PATH=/usr/local/bin:/usr/bin"]}
    images: dict[str, Any] = {
        "own": ((host, python, packages), {**path, "User": "app"}),
        "plain": ((host, python), path),
        "broken": ((host, python, packages, broken), path),
    }
    async with mesh_with(make_mesh, images) as (mesh, folder), MeshAsync(mesh.addresses[0]) as client:
        address = mesh.addresses[0]
        async with BaseSandboxAsync(base_url=address, image=f"oci:{folder}/own") as box:
            assert (await box.run_ipython_cell(WHO)).text.split() == [own, str(Path(own).parents[1]), "False", "True"]
            assert (await client.sandboxes.get(box.sandbox_id)).enforced["kernels"].endswith(own)
            kernel = await box.kernels.get("default")
            assert [one.program for one in await box.kernels.list()] == [own]
            shown = await kernel.run(SHOWN, on_input=lambda _: "ann")
            assert "ann" in shown.text
            assert "ValueError: last" in shown.text
            assert (await box.run_ipython_cell("import asyncio; await asyncio.sleep(0); x = 6 * 7")).text == ""
            (fork,) = await kernel.fork()
            assert (await fork.run("import os; print(x, os.getuid())")).text.split() == ["42", "1234"]
            assert (await box.run_ipython_cell("while True: pass", timeout=0.5)).is_error
            assert (await box.run_ipython_cell("print(x)")).text == "42\n"
            await kernel.restart()
            assert "NameError" in (await box.run_ipython_cell("x")).text
        for name in ("plain", "broken"):
            async with BaseSandboxAsync(base_url=address, image=f"oci:{folder}/{name}") as box:
                assert (await box.run_ipython_cell(WHO)).text.split()[1] == "/opt/env"
                assert [one.program for one in await box.kernels.list()] == [""]
        async with BaseSandboxAsync(base_url=address, image=f"oci:{folder}/plain") as box:
            assert "template" in (await client.sandboxes.get(box.sandbox_id)).enforced["kernels"]
