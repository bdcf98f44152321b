"""Images that are built of Dockerfiles, without an engine."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.sandbox.boxes import SandboxAsync
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.ignore import read_ignore
from sandmeshd.images.builds.options import ImageBuildOptions, Report, Totals
from sandmeshd.images.image import PulledImage
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.image_builds import build_image
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import entry, make_tar
from tests.image_roots import busybox_root, write_image
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import run
from tests.ordinary import run_tests, subordinate_home

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]


@dataclass
class Bench:
    """A store with a base, and a directory for Dockerfiles."""

    folder: Path
    lines: list[str] = field(default_factory=list[str])

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def context(self) -> Path:
        return self.folder / "context"

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the build's directory."""
        path = self.context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    async def build(self, text: str, **options: Any) -> tuple[PulledImage, Totals]:
        """Build a Dockerfile, whose FROM names the base as BASE, under the name mine:1."""
        self.lines.clear()
        dockerfile = text.replace("BASE", f"oci:{self.folder}/base")
        wanted = ImageBuildOptions(
            dockerfile=dockerfile.encode(), context=Context(self.context, read_ignore(self.context, None)), **options
        )
        settings = MeshSettings.model_validate({"image_store": {"images": self.images}})
        return await build_image(settings, "mine:1", wanted, Report(self.lines.append, self.lines.append))

    @property
    def left(self) -> list[str]:
        """What builds have left that is neither an image nor a cache."""
        return [str(path) for name in ("builds", "partial") for path in (self.images / name).iterdir()]


@pytest.fixture
def bench() -> Generator[Bench]:
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    made = Bench(folder)
    made.context.mkdir()
    layers = (*busybox_root(), make_tar(entry("tmp", tarfile.DIRTYPE, mode=0o1777)))
    write_image(folder / "base", layers, Env=["PATH=/bin"])
    yield made
    remove_tree(folder)


async def test_a_dockerfile_becomes_an_image_that_sandboxes_start_with(bench: Bench, make_mesh: MeshMaker) -> None:
    bench.write("a.txt", "a")
    bench.write("sub/b.sh", "echo b\n", 0o755)
    bench.write("skipped.log", "x")
    bench.write(".dockerignore", "*.log\n")
    text = """FROM BASE
ARG WHO=world
ENV GREETING="hello $WHO"
WORKDIR /srv/app
COPY --chown=app:1300 --chmod=640 a.txt renamed
COPY . all/
RUN echo "$GREETING" > said && busybox ln said twin && rm /bin/grep && echo gone > /tmp/kept
RUN ["/bin/sh", "-c", "test ! -e /bin/grep && cat /tmp/kept"]
COPY <<one.txt <<"two.txt" /docs/
$GREETING
one.txt
$GREETING
two.txt
RUN <<EOF
mkdir -p /deep/er
echo script > /deep/er/x
rm -rf /app && mkdir /app && echo new > /app/new
EOF
USER app
WORKDIR /var/work
LABEL made=here
CMD ["sh"]
"""
    image, totals = await bench.build(text)
    assert (totals.steps, totals.cached) == (7, 0)
    assert bench.left == []
    assert image.config.labels == {"made": "here"}
    assert image.config.cmd == ("sh",)
    again, totals = await bench.build(text)
    assert (again.digest, totals.steps, totals.cached, totals.written) == (image.digest, 7, 7, 0)
    # A change of what a step takes carries out that step and those after it.
    bench.write("skipped.log", "y")
    assert (await bench.build(text))[1].cached == 7
    bench.write("sub/b.sh", "echo c\n", 0o755)
    other, totals = await bench.build(text)
    assert (other.digest != image.digest, totals.cached) == (True, 1)
    look = (
        "id -u; pwd; cat /srv/app/said /deep/er/x /app/new; ls /app /srv/app/all; echo $GREETING;"
        "stat -c '%u %g %a %h' /srv/app/renamed /srv/app/twin; sh /srv/app/all/sub/b.sh; ls -a /opt /run;"
        "cat /docs/one.txt /docs/two.txt; ls /bin/grep"
    )
    async with (
        make_mesh(ephemeral=False, image_store={"images": bench.images}) as mesh,
        SandboxAsync(base_url=mesh.addresses[0], image="mine:1") as box,
    ):
        said = (await run(box, look)).split("\n")
    assert said[:6] == ["1234", "/var/work", "hello world", "script", "new", "/app:"]
    assert said[6:11] == ["new", "", "/srv/app/all:", "a.txt", "sub"]
    assert said[11:16] == ["hello world", "1234 1300 640 1", "0 0 644 2", "c", "/opt:"]
    assert said[-4:-2] == ["hello world", "$GREETING"]
    assert any("/bin/grep: No such file" in line for line in said)


async def test_a_command_that_fails_is_named_with_its_line_and_output(bench: Bench) -> None:
    with pytest.raises(errors.TemplateBuildFailed, match=r"line 3 of the Dockerfile, RUN echo .*code 7") as failed:
        await bench.build("FROM BASE\nENV A=1\nRUN echo looked for; echo and not found >&2; exit 7\nRUN true")
    assert failed.value.facts["detail"] == "looked for\nand not found"
    with pytest.raises(errors.TemplateBuildFailed, match="code 127") as failed:
        await bench.build('FROM BASE\nRUN ["missing"]')
    assert "missing: No such file" in failed.value.facts["detail"]
    assert bench.left == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM BASE\nRUN --security=insecure true", "line 2 .*--security=insecure is not supported"),
        ("FROM BASE\nONBUILD RUN true", "line 2 .*triggers are not supported"),
        ("FROM BASE\nADD https://example.org/x /x", "line 2 .*use RUN with curl"),
        ("FROM BASE\nCOPY missing /x", "line 2 .*missing is not there"),
        ("FROM BASE\nCOPY ../x /x", "line 2 .*outside of"),
        ("FROM BASE\nUSER nobody-here\nRUN true", "line 3 .*no user 'nobody-here'"),
        ("FROM BASE\nCOPY a /etc/passwd/", "line 2 .*/etc/passwd cannot be a directory"),
        ("FROM BASE\nCOPY --from=later /x /x\nFROM BASE AS later", "the Dockerfile has no stage|comes later"),
        ("FROM --platform=linux/s390x BASE", "line 1 .*this machine builds for"),
        ("FROM BASE\nFROB x", "line 2 .*no such instruction"),
        ("FROM BASE\nRUN --mount=type=secret,id=t,required true", "line 2 .*--secret id=t"),
        ("FROM oci:/nowhere", "line 1 "),
    ],
)
async def test_what_is_not_supported_is_refused_by_its_line(bench: Bench, text: str, message: str) -> None:
    bench.write("a", "a")
    target = "" if "later" not in text else "0"
    with pytest.raises(errors.SandmeshError, match=message):
        await bench.build(text, target=target)
    assert bench.left == []


@pytest.mark.needs("root", "uidmap")
def test_all_of_it_holds_for_an_ordinary_user_with_subordinate_ids() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "not ordinary_user")
