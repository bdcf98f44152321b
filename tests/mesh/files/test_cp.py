"""`sandmesh cp`, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmeshd.cli.sandboxes.files import parse_copy
from sandmeshd.mesh import Mesh
from tests.mesh.cli.test_up import sandmesh


async def test_files_and_directories_are_copied_both_ways(mesh: Mesh, tmp_path: Path) -> None:
    where = ("--base-url", mesh.addresses[0])
    (tmp_path / "tree/sub").mkdir(parents=True)
    (tmp_path / "tree/sub/file").write_text("content")
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await sandmesh("cp", *where, f"{tmp_path}/tree/sub/file", f"{box.sandbox_id}:")
        assert await box.fs.read("file") == "content"
        await sandmesh("cp", *where, f"{tmp_path}/tree", f"{box.sandbox_id}:copy")
        assert await box.fs.read("copy/sub/file") == "content"
        _, answer, _ = await sandmesh("cp", *where, "-o", "json", f"{box.sandbox_id}:copy", str(tmp_path))
        assert json.loads(answer) == {"source": f"{box.sandbox_id}:copy", "destination": str(tmp_path)}
        assert (tmp_path / "copy/sub/file").read_text() == "content"
        code, _, said = await sandmesh("cp", *where, f"{box.sandbox_id}:nothing", str(tmp_path), check=False)
        assert (code, "nothing" in said) == (3, True)
        code, _, said = await sandmesh("cp", *where, f"{box.sandbox_id}:/etc/passwd", str(tmp_path), check=False)
        assert (code, "outside" in said) == (5, True)


@pytest.mark.parametrize(("source", "destination"), [("a", "b"), ("sb_1:a", "sb_2:b"), ("./a:b", "/c:d")])
def test_one_side_is_in_a_sandbox(source: str, destination: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="in a sandbox: one must be SANDBOX:PATH"):
        parse_copy(source, destination)


@pytest.mark.parametrize("places", [("sb_1:a", "-"), ("-", "sb_1:a")])
def test_standard_input_and_output_are_left_to_exec(places: tuple[str, str]) -> None:
    with pytest.raises(errors.InvalidArgument, match="sandmesh exec"):
        parse_copy(*places)
    assert parse_copy("./-", "sb_1:a").local == "./-"


def test_a_path_with_a_colon_is_taken_as_one() -> None:
    copy = parse_copy("./a:b", "sb_1:c")
    assert (copy.local, copy.remote, copy.into_sandbox) == ("./a:b", "c", True)
