"""Images that are built of Dockerfiles, without an engine."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.shared.files.dockerignore import read_ignore
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.options import ImageBuildOptions, MountedSecret, Report, Totals
from sandmeshd.images.image import PulledImage
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
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
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

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
        settings = MeshSettings.model_validate({"image_store": {"images": self.images, **self.settings}})
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


@contextmanager
def serving_http() -> Generator[int]:
    """Serve HTTP on this machine's loopback; yield the port."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(Path(__file__).parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


EVERYTHING = """FROM BASE
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
"""A Dockerfile with most instructions."""


async def test_a_dockerfile_becomes_an_image_that_sandboxes_start_with(bench: Bench, make_mesh: MeshMaker) -> None:
    bench.write("a.txt", "a")
    bench.write("sub/b.sh", "echo b\n", 0o755)
    bench.write("skipped.log", "x")
    bench.write(".dockerignore", "*.log\n")
    image, totals = await bench.build(EVERYTHING)
    assert (totals.steps, totals.cached) == (7, 0)
    assert bench.left == []
    assert image.config.labels == {"made": "here"}
    assert image.config.cmd == ("sh",)
    again, totals = await bench.build(EVERYTHING)
    assert (again.digest, totals.steps, totals.cached, totals.written) == (image.digest, 7, 7, 0)
    # A change of what a step takes carries out that step and those after it.
    bench.write("skipped.log", "y")
    assert (await bench.build(EVERYTHING))[1].cached == 7
    bench.write("sub/b.sh", "echo c\n", 0o755)
    other, totals = await bench.build(EVERYTHING)
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


async def test_a_command_of_any_user_opens_its_output_by_name(bench: Bench) -> None:
    by_root = "RUN ln -s /dev/stderr /log; echo one > /dev/stdout; echo two > /log"
    await bench.build(f"FROM BASE\n{by_root}\nUSER app\nRUN echo three > /log")
    assert [line for line in bench.lines if line in ("one", "two", "three")] == ["one", "two", "three"]


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


async def test_stages_take_files_of_each_other_and_others_are_skipped(bench: Bench) -> None:
    bench.write("plain", "p")
    with tarfile.open(bench.context / "some.tar.gz", "w:gz") as archive:
        archive.add(bench.context / "plain", "inner/file")
    text = """ARG FLAVOUR=none
FROM BASE AS unused
RUN exit 1
FROM BASE AS one
ARG FLAVOUR
RUN mkdir -p /out/sub && echo $FLAVOUR > /out/sub/f && chown 1234:1300 /out/sub/f && busybox ln -s sub/f /out/link
FROM one AS two
ENV OF_TWO=1
RUN echo two > /out/two
FROM scratch
COPY --from=two /out/ /made/
COPY --from=1 /out/link /followed
COPY --from=other plain /named/
COPY --from=oci:FOLDER/base /bin/busybox /bin/sh
ADD some.tar.gz plain /added/
RUN --network=none echo done >> /made/two
""".replace("FOLDER", str(bench.folder))
    options: dict[str, Any] = {"arguments": {"FLAVOUR": "salt"}, "contexts": {"other": Context(bench.context)}}
    image, totals = await bench.build(text, **options)
    assert totals.steps == 8
    assert not any("unused" in line for line in bench.lines)
    assert "OF_TWO" not in image.config.env
    look = """FROM mine:1
RUN cd /; cat made/sub/f followed made/two named/plain added/plain added/inner/file > /all
RUN --mount=type=bind,from=BASE,source=/bin,target=/tools /tools/stat -c '%u %g %n' /made/sub/f /named/plain /followed
"""
    await bench.build(look + "RUN while read line; do echo $line; done < /all")
    assert bench.lines[-4:-1] == ["salt", "salt", "two"] or bench.lines[-4:] == ["salt", "salt", "two", "done"]
    assert "1234 1300 /made/sub/f" in bench.lines
    assert "0 0 /named/plain" in bench.lines
    with pytest.raises(errors.InvalidArgument, match="no stage 'three'"):
        await bench.build(text, **options, target="three")


async def test_mounts_are_there_for_their_command_only(bench: Bench) -> None:
    bench.write("script.sh", "echo from the context\n")
    text = """FROM BASE
RUN --mount=type=cache,target=/var/cache/it,mode=0777 echo NUMBER >> /var/cache/it/log; cat /var/cache/it/log
RUN --mount=type=secret,id=token,uid=1234 cat /run/secrets/token && echo && stat -c '%u %a' /run/secrets/token
RUN --mount=type=secret,id=token,env=TOKEN --mount=type=secret,id=missing echo "by variable: $TOKEN"
RUN --mount=type=bind,target=/context,source=. sh /context/script.sh && ! touch /context/x
RUN --mount=type=tmpfs,target=/scratch,size=1m echo x > /scratch/x
RUN ls -d /scratch /context /run/secrets /run/agent /opt/sandmesh /var/cache/it || true
"""
    options: dict[str, Any] = {"secrets": {"token": MountedSecret("pass word")}}
    await bench.build(text.replace("NUMBER", "1"), **options)
    assert "pass word" in bench.lines
    assert "1234 400" in bench.lines
    assert "by variable: pass word" in bench.lines
    assert "from the context" in bench.lines
    assert sum("No such file" in line for line in bench.lines[-6:]) >= 4
    await bench.build(text.replace("NUMBER", "2"), **options)
    assert bench.lines[1:3] == ["1", "2"], "a cache outlives its build"
    for blob in (bench.images / "blobs").iterdir():
        data = blob.read_bytes()
        assert b"pass word" not in (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    # A changed secret does not change the step.
    assert (await bench.build(text.replace("NUMBER", "2"), secrets={"token": MountedSecret("new")}))[1].cached == 6
    await ImageStore(ImageSettings(images=bench.images), bench.folder).prune()
    kept = [path for name in ("caches", "layers", "blobs", "builds") for path in (bench.images / name).iterdir()]
    assert kept == []


async def test_a_command_reaches_what_is_granted_and_nothing_else(bench: Bench) -> None:
    with serving_http() as port:
        text = f"FROM BASE\nRUN wget -q -O - http://127.0.0.1:{port}/ && echo fetched"
        await bench.build(text, network=(f"127.0.0.1:{port}",))
        assert bench.lines[-1] == "fetched"
        with pytest.raises(errors.TemplateBuildFailed, match="code") as failed:
            await bench.build(text, network=("packages",))
        assert f"127.0.0.1:{port}" in failed.value.facts["detail"]
        with pytest.raises(errors.TemplateBuildFailed, match="code"):
            await bench.build(text, network=())


async def test_a_build_that_is_interrupted_or_killed_leaves_nothing_that_stays(bench: Bench) -> None:
    (bench.context / "Dockerfile").write_text(
        f"FROM oci:{bench.folder}/base\nRUN echo first > /first\nRUN echo waiting; busybox sleep 600"
    )
    environment = {**os.environ, "SANDMESH_IMAGES": str(bench.images)}
    command = [str(Path(sys.executable).with_name("sandmesh")), "build", str(bench.context), "--tag", "mine:1"]
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE, env=environment)
        assert process.stderr is not None
        while b"waiting" not in (line := await process.stderr.readline()) or b"RUN" in line:
            assert line, "the build ended"
        (folder,) = (path for path in (bench.images / "builds").iterdir() if path.is_dir())
        process.send_signal(number)
        assert await process.wait() == code
        async with asyncio.timeout(20):
            while sandboxes_of(folder):  # noqa: ASYNC110 - /proc has nothing to wait for
                await asyncio.sleep(0.05)
        assert (bench.left == []) is (number == signal.SIGINT)
    _, totals = await bench.build((bench.context / "Dockerfile").read_text().replace("busybox sleep 600", "true"))
    assert (totals.cached, bench.left) == (1, [])


def sandboxes_of(folder: Path) -> list[str]:
    """Return the processes that a build's step started, by their command line."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            found += [text] if str(folder) in text else []
    return found


@contextmanager
def mounted(path: Path, options: str) -> Generator[None]:
    """Have a directory in memory, which is this user's."""
    path.mkdir()
    subprocess.run(["/usr/bin/mount", "-t", "tmpfs", "-o", options, "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["/usr/bin/umount", "--lazy", path], check=True)


@pytest.mark.needs("root")
async def test_a_full_disk_fails_a_build_and_leaves_nothing_half(bench: Bench) -> None:
    with mounted(bench.images, "size=24m,mode=0700"):
        await bench.build("FROM BASE\nRUN true")
        with pytest.raises(errors.SandmeshError) as failed:
            await bench.build("FROM BASE\nRUN busybox dd if=/dev/urandom of=/large bs=1M count=12")
        assert "disk is full" in str(failed.value) or "No space" in failed.value.facts["detail"]
        assert bench.left == []
        await bench.build("FROM BASE\nRUN echo fits > /small")


@pytest.mark.needs("root")
async def test_a_command_is_bounded_in_memory_processes_and_disk(bench: Bench) -> None:
    bench.settings = {"image_build_memory": 96 << 20, "image_build_processes": 24, "image_bytes": 48 << 20}
    with pytest.raises(errors.TemplateBuildFailed) as failed:
        await bench.build("FROM BASE\nRUN busybox dd if=/dev/zero of=/dev/null bs=200M count=1")
    assert "SANDMESH_IMAGE_BUILD_MEMORY" in failed.value.facts["detail"]
    many = "for each in $(busybox seq 60); do busybox sleep 60 & done"
    with pytest.raises(errors.TemplateBuildFailed) as failed:
        await bench.build(f"FROM BASE\nRUN {many}")
    assert "fork" in failed.value.facts["detail"]
    with pytest.raises(errors.TooLarge, match=r"line 2 .*has written more than .* SANDMESH_IMAGE_BYTES"):
        await bench.build("FROM BASE\nRUN busybox dd if=/dev/zero of=/large bs=1M count=90; busybox sleep 60")
    assert bench.left == []
    assert build_groups() == []


def build_groups() -> list[Path]:
    """Return the control groups that builds have left."""
    return list(Path("/sys/fs/cgroup").rglob("sandmesh-builds-*"))


def test_the_commands_of_the_page_work_as_they_stand_there(bench: Bench) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "builds.md"
    (bench.folder / "app").mkdir()
    variables = {
        "SANDMESH_IMAGES": str(bench.images),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(bench.folder),
        "BASE": f"oci:{bench.folder}/base",
    }
    (block,) = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    script = ("/bin/bash", "-euo", "pipefail", "-c", block)
    done = subprocess.run(script, env=variables, cwd=bench.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("(cached)") == 2
    assert '"cat"' in done.stdout


@pytest.mark.needs("root", "uidmap")
@pytest.mark.timeout(480)
def test_all_of_it_holds_for_an_ordinary_user_with_subordinate_ids() -> None:
    with subordinate_home() as home:
        run_tests(home, __file__, "-k", "becomes or stages or mounts")
