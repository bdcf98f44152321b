"""Android in a container: its configuration on a real engine, up to what this machine's kernel lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiodocker import Docker

from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.engine.engine import open_engine
from sandmeshd.drivers.engine.redroid import MODULE, check_binder, container_spec, start
from tests.engine import left_on

pytestmark = pytest.mark.needs("root", "docker")

IMAGE = "sandmesh/base:latest"
"""In the place of Android's image, which cannot be pulled here: the engine reads the same configuration."""


async def test_an_engine_takes_the_configuration_of_a_container_with_android(engine: str) -> None:
    async with Docker(url=engine) as client:
        docker: Any = client
        made = await docker.containers.create(container_spec(IMAGE, 1080, 1920))
        try:
            shown = await made.show()
            assert shown["Args"][-4:] == [
                "androidboot.redroid_width=1080",
                "androidboot.redroid_height=1920",
                "androidboot.redroid_fps=15",
                "androidboot.redroid_gpu_mode=guest",
            ]
            assert shown["HostConfig"]["Privileged"] is True
            assert shown["HostConfig"]["Memory"] == 4 << 30
            assert shown["HostConfig"]["PortBindings"] == {"5555/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
        finally:
            await made.delete(force=True)


@pytest.mark.skipif("binder" in Path("/proc/filesystems").read_text(), reason="this kernel has binder")
async def test_without_binder_nothing_is_started_and_the_error_has_the_line_that_loads_it(engine: str) -> None:
    async with open_engine(engine) as opened:
        before = left_on(engine)
        with pytest.raises(CapabilityMissing, match=MODULE) as caught:
            await start(opened, IMAGE)
        assert caught.value.facts["needs"] == "binder"
        assert left_on(engine) == before


def test_binder_is_found_as_a_file_system_or_as_a_device(tmp_path: Path) -> None:
    (tmp_path / "filesystems").write_text("nodev\tbinder\n")
    check_binder(tmp_path / "filesystems", tmp_path / "none")
    (tmp_path / "binder").touch()
    check_binder(tmp_path / "none", tmp_path / "binder")
    with pytest.raises(CapabilityMissing):
        check_binder(tmp_path / "none", tmp_path / "none")
