"""What an image for another platform is made of, and how one is named and refused."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.engine.images.platforms import archive_image, check_platform, is_foreign, named_for


def test_an_archive_says_its_platform_and_holds_the_files_as_one_layer(tmp_path: Path) -> None:
    root = tmp_path / "base.tar"
    root.write_bytes(b"not looked into" * 1000)
    with tarfile.open(archive_image(root, "debian:bookworm-slim-arm64", "linux/arm64")) as archive:
        read: dict[str, Any] = {}
        for entry in archive.getmembers():
            part = archive.extractfile(entry)
            assert part is not None
            read[entry.name] = part.read()
    [manifest] = json.loads(read["manifest.json"])
    config = json.loads(read[manifest["Config"]])
    assert manifest["RepoTags"] == ["debian:bookworm-slim-arm64"]
    assert (config["os"], config["architecture"]) == ("linux", "arm64")
    assert read[manifest["Layers"][0]] == root.read_bytes()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(root.read_bytes()).hexdigest()}"]


def test_only_platforms_that_have_all_packages_are_taken() -> None:
    for platform in ("", "linux/amd64", "linux/arm64"):
        check_platform(platform)
    with pytest.raises(InvalidArgument, match="'windows/amd64': name linux/amd64 or linux/arm64"):
        check_platform("windows/amd64")
    assert named_for("a/b:1", "") == "a/b:1"


@pytest.mark.parametrize(
    ("words", "foreign"),
    [
        ("#7 0.2 exec /bin/sh: exec format error", True),
        ("E: install arch-test for foreign architecture support", True),
        ("E: arm64 can neither be executed natively nor via qemu user emulation with binfmt_misc", True),
        ("E: mmdebstrap failed to run", False),
    ],
)
def test_the_want_of_a_processor_is_known_by_its_words(words: str, foreign: bool) -> None:
    assert is_foreign(words) is foreign
