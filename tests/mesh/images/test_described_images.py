"""Images that programs describe, and a mesh builds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from sandmesh import Image, errors
from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.boxes import BaseSandboxAsync
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from tests.mesh import snippets
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_builds import Bench, bench
from tests.mesh.images.test_image_roots import run

__all__ = ["bench"]

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "builds.md"


def described(bench: Bench) -> Image:
    """Describe an image of most methods."""
    bench.write("tree/sub/a.txt", "a")
    bench.write("tree/left.log", "out")
    bench.write("tree/.dockerignore", "*.log")
    bench.write("one file", "alone")
    return (
        Image.from_registry(f"oci:{bench.folder}/base", network="none")
        .env({"GREETING": 'said "$HOME" \\'}, OTHER="two words")
        .workdir("/srv/app dir")
        .add_dir(bench.context / "tree", "/srv/tree", owner="app")
        .add_file(bench.context / "one file", "/srv/")
        .run('echo "$GREETING" > said', "for each in 1 2\ndo\n  echo $each \\\n >> said\ndone")
        .user("app")
        .instruction("LABEL made=here")
    )


async def test_a_described_image_is_built_for_its_first_sandbox(bench: Bench, make_mesh: MeshMaker) -> None:
    image = described(bench)
    async with make_mesh(image_store={"images": bench.images}) as mesh:
        address = mesh.addresses[0]
        async with BaseSandboxAsync(base_url=address, image=image) as box:
            said = await run(
                box, "id -un; pwd; cat said; ls -a /srv/tree; stat -c %U /srv/tree/sub/a.txt; cat '/srv/one file'"
            )
        lines: list[str] = []
        again = await image.build_async(base_url=address, progress=lines.append)
        async with BaseSandboxAsync(base_url=address, image=again.reference) as box:
            assert await run(box, "echo $OTHER") == "two words\n"
        tagged = await image.run("echo more").build_async("mine:1", base_url=address)
    assert said.split("\n")[:5] == ["app", "/srv/app dir", 'said "$HOME" \\', "1", "2"]
    assert said.split("\n")[5:] == [".", "..", ".dockerignore", "sub", "app", "alone"]
    assert (again.steps, again.cached_steps, again.written_bytes) == (4, 4, 0)
    assert sum("(cached)" in line for line in lines) == 4
    assert (tagged.reference, tagged.cached_steps) == ("docker.io/library/mine:1", 4)
    # A Dockerfile with the same steps has them in the same cache.
    text = """FROM BASE
ENV GREETING="said \\"\\$HOME\\" \\\\" OTHER="two words"
WORKDIR "/srv/app dir"
COPY --chown=app tree /srv/tree/
COPY ["one file", "/srv/one file"]
RUN echo "$GREETING" > said
"""
    bench.write(".dockerignore", "**/*.log")
    _, totals = await bench.build(text, network=())
    assert (totals.steps, totals.cached) == (3, 3)


async def test_what_a_build_refuses_is_told_with_its_line_and_leaves_nothing(
    bench: Bench, make_mesh: MeshMaker
) -> None:
    async with make_mesh(image_store={"images": bench.images, "image_context_bytes": 40_000}) as mesh:
        address = mesh.addresses[0]
        base = Image.from_registry(f"oci:{bench.folder}/base", network="none")
        with pytest.raises(errors.TemplateBuildFailed, match=r"line 2 of the Dockerfile, RUN echo .*code 3") as failed:
            await base.run("echo looked for; exit 3").build_async(base_url=address)
        assert failed.value.facts["detail"] == "looked for"
        with pytest.raises(errors.InvalidArgument, match=r"line 2 .*triggers are not supported"):
            await base.instruction("ONBUILD RUN true").build_async(base_url=address)
        bench.write("large", "x" * 50_000)
        with pytest.raises(errors.TooLarge, match=r"at most 40000 are taken.*\.dockerignore"):
            await base.add_file(bench.context / "large", "/large").build_async(base_url=address)
        with pytest.raises(errors.DeadlineExceeded, match="build again"):
            await base.run("busybox sleep 60").build_async(base_url=address, timeout=2)
        async with asyncio.timeout(30):
            while bench.left:  # noqa: ASYNC110 - the mesh tells nobody when a build that nobody follows is gone
                await asyncio.sleep(0.05)


async def test_users_build_under_names_of_their_own_and_reach_no_file_of_the_host(
    bench: Bench, make_mesh: MeshMaker
) -> None:
    store = ImageStore(ImageSettings(images=bench.images), bench.folder)
    await store.import_image(bench.folder / "base", "base:1")
    async with make_mesh(ephemeral=False, image_store={"images": bench.images}) as mesh:
        address = mesh.addresses[0]
        async with MeshAsync(address) as admin:
            tokens = [(await admin.tokens.create(name, user_id=name)).secret for name in ("ada", "bob")]
        image = Image.from_registry("base:1", network="none").run("echo own > /own")
        built = [await image.build_async(base_url=address, bearer_token=token) for token in (*tokens, tokens[0])]
        assert built[0].reference == built[2].reference != built[1].reference
        assert [one.cached_steps for one in built] == [0, 0, 1], "users share no result of a command"
        with pytest.raises(errors.InvalidArgument, match="removed since: build it again"):
            await Image.from_registry("build.sandmesh.invalid/image:1").build_async(base_url=address)
        with pytest.raises(errors.PermissionDenied, match="takes an administrator"):
            await image.build_async("base:1", base_url=address, bearer_token=tokens[0])
        for other in (
            Image.from_registry(f"oci:{bench.folder}/base"),
            Image.from_registry("base:1").instruction(f"COPY --from=tar:{bench.folder}/x /x /x"),
        ):
            with pytest.raises(errors.PermissionDenied, match="is a file of the mesh's machine"):
                await other.build_async(base_url=address, bearer_token=tokens[0])


async def test_the_program_of_the_page_works_as_it_stands_there(
    bench: Bench, make_mesh: MeshMaker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    bench.write("app/greeting", "from the page\n")
    async with make_mesh(image_store={"images": bench.images}) as mesh:
        monkeypatch.setenv("SANDMESH_ADDRESS", mesh.addresses[0])
        with chdir(bench.context):
            await asyncio.to_thread(snippets.run, block, base=f"oci:{bench.folder}/base")
    assert "from the page\nhello\n" in capsys.readouterr().out


WRONG: tuple[tuple[Callable[[Image], object], str], ...] = (
    (lambda image: image.apt_install(), "packages are texts"),
    (lambda image: image.env({"A B": "x"}), "is not the name of a variable"),
    (lambda image: image.env(A="two\nlines"), "one line"),
    (lambda image: image.add_dir("/nowhere/at/all", "/x"), "is not a directory"),
    (lambda image: image.add_file("/nowhere/at/all", "/x"), "is not a file"),
    (lambda image: image.add_file("/etc/hostname", ""), "a path in the image"),
    (lambda image: Image.from_registry("a b"), "is not the name of an image"),
    (lambda image: Image.from_dockerfile("/nowhere/Dockerfile"), "cannot be read"),
)


@pytest.mark.parametrize(("describe", "message"), WRONG)
def test_wrong_descriptions_are_refused_where_they_are_written(
    describe: Callable[[Image], object], message: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        describe(Image.from_registry("debian:12"))


def test_a_description_is_a_dockerfile(tmp_path: Path) -> None:
    image = Image.from_registry("debian:12").apt_install("git", "curl").pip_install("numpy==2.1.0")
    assert image.dockerfile.split("\n")[0] == "FROM debian:12"
    assert "apt-get install -y --no-install-recommends git curl" in image.dockerfile
    assert "RUN python3 -m pip install --no-cache-dir numpy==2.1.0" in image.dockerfile
    (tmp_path / "Dockerfile").write_text("FROM scratch AS one\nFROM one\n")
    assert Image.from_dockerfile(tmp_path / "Dockerfile").run("true").dockerfile.endswith("FROM one\nRUN true\n")
