"""Pulls from and pushes to a real registry with TLS and a password."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sandmesh.errors import InvalidArgument, PermissionDenied, RuntimeUnavailable, TooLarge, WrongState
from sandmeshd.images.progress import PullProgress
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import entry, file_entry, make_image, make_index, make_tar
from tests.registry import IDENTITY_TOKEN, PASSWORD, USER, Registry, demanding_tokens, running_registry

pytestmark = [pytest.mark.needs("registry"), pytest.mark.needs("root")]
LARGE = os.urandom(6 << 20)
FOREIGN = "arm64"


@pytest.fixture(scope="module")
def registry() -> Generator[Registry]:
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, running_registry(Path(made)) as one:
        yield one


@pytest.fixture
def store(registry: Registry, folder: Path) -> ImageStore:
    return ImageStore(registry.settings(folder / "images"), folder)


def tree(name: str, content: bytes = b"") -> bytes:
    return make_tar(entry("etc", tarfile.DIRTYPE), file_entry(f"etc/{name}", content))


def left(store: ImageStore) -> list[str]:
    """Return what is downloaded and unpacked."""
    names = ("blobs", "layers", "partial", "references")
    return [f"{name}/{path.name}" for name in names for path in (store.directory / name).iterdir()]


async def test_an_image_of_sixty_layers_is_pulled_with_progress_and_found_again(
    registry: Registry, store: ImageStore
) -> None:
    made = make_image([tree(f"{number}") for number in range(60)], {"Entrypoint": ["/bin/x"], "User": "1000:7"})
    name = registry.push(made, "many/layers:v1")
    steps: list[PullProgress] = []
    image = await store.pull(name, progress=steps.append)
    assert [path.name for layer in image.layers for path in (layer / "etc").iterdir()] == [str(n) for n in range(60)]
    assert (image.config.entrypoint, image.config.user, image.digest) == (
        ("/bin/x",),
        "1000:7",
        made.manifest["digest"],
    )
    assert (steps[0].message, steps[-1].fraction) == (f"looking up {name}", 1.0)
    assert store.find(name) == image
    by_digest = await store.pull(f"{name.partition(':v1')[0]}@{image.digest}")
    assert by_digest.layers == image.layers


async def test_an_empty_image_has_no_layers(registry: Registry, store: ImageStore) -> None:
    image = await store.pull(registry.push(make_image([]), "empty:1"))
    assert image.layers == ()
    assert store.find(f"{registry.host}/empty:1") == image


async def test_an_index_leads_to_this_platforms_manifest(registry: Registry, store: ImageStore) -> None:
    ours, theirs = make_image([tree("ours")]), make_image([tree("theirs")], architecture=FOREIGN)
    image = await store.pull(registry.push(make_index(amd64=ours, arm64=theirs), "both:1"))
    assert image.digest == ours.manifest["digest"]
    with pytest.raises(InvalidArgument, match="nothing for linux/amd64, but for linux/arm64"):
        await store.pull(registry.push(make_index(arm64=theirs), "foreign:1"))
    with pytest.raises(InvalidArgument, match="for linux/arm64, and this machine is linux/amd64"):
        await store.pull(registry.push(theirs, "foreign:2"))


async def test_who_may_not_pull_is_told_how_to_log_in(registry: Registry, folder: Path) -> None:
    name = registry.push(make_image([]), "private:1")
    nobody = ImageStore(registry.settings(folder / "images", image_credentials=folder / "none"), folder)
    with pytest.raises(PermissionDenied, match="docker login"):
        await nobody.pull(name)
    login = base64.b64encode(b"ann:wrong").decode()
    (folder / "config.json").write_text(json.dumps({"auths": {registry.host: {"auth": login}}}))
    wrong = ImageStore(registry.settings(folder / "images", image_credentials=folder / "config.json"), folder)
    with pytest.raises(PermissionDenied, match="refuses the credentials"):
        await wrong.pull(name)


async def test_a_token_is_had_by_a_password_and_by_an_identity_token(registry: Registry, folder: Path) -> None:
    registry.push(make_image([tree("tokens")]), "token/one:1")
    config = folder / "config.json"
    with demanding_tokens(registry) as host:
        store = ImageStore(registry.settings(folder / "images", image_credentials=config), folder)
        for login in ({"username": USER, "password": PASSWORD}, {"identitytoken": IDENTITY_TOKEN}):
            config.write_text(json.dumps({"auths": {host: login}}))
            image = await store.pull(f"{host}/token/one:1")
            await store.push(image, f"{host}/token/two:1")
        config.write_text(json.dumps({"auths": {host: {"username": USER, "password": "wrong"}}}))
        with pytest.raises(PermissionDenied, match="its credentials are not right"):
            await store.pull(f"{host}/token/one:1")
        config.unlink()
        with pytest.raises(PermissionDenied, match="docker login"):
            await store.pull(f"{host}/token/one:1")


async def test_a_credential_helper_is_asked(registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = folder / "docker-credential-test"
    answer = json.dumps({"Username": USER, "Secret": PASSWORD})
    helper.write_text(f"#!/bin/sh\nread server\ntest \"$server\" = {registry.host} && echo '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    config = folder / "config.json"
    config.write_text(json.dumps({"credHelpers": {registry.host: "test"}}))
    helped = ImageStore(registry.settings(folder / "images", image_credentials=config), folder)
    await helped.pull(registry.push(make_image([]), "helped:1"))
    config.write_text(json.dumps({"credsStore": "absent"}))
    with pytest.raises(RuntimeUnavailable, match="docker-credential-absent"):
        await helped.pull(f"{registry.host}/helped:1")


async def test_what_is_not_there_or_does_not_answer_is_named(
    registry: Registry, store: ImageStore, folder: Path
) -> None:
    with pytest.raises(InvalidArgument, match="there is no image"):
        await store.pull(f"{registry.host}/absent:1")
    with pytest.raises(RuntimeUnavailable, match="does not respond"):
        await store.pull("127.0.0.1:1/absent:1")
    foreign = ImageStore(ImageSettings(images=folder / "images"), folder)
    with pytest.raises(RuntimeUnavailable, match="SANDMESH_IMAGE_CERTIFICATES"):
        await foreign.pull(f"{registry.host}/absent:1")
    assert left(store) == []


async def test_wrong_digests_are_refused_and_leave_nothing(registry: Registry, store: ImageStore) -> None:
    changed, lying = make_image([tree("changed")]), make_image([tree("lying")])
    name = registry.push(changed, "changed:1")
    layer = json.loads(changed.blobs[changed.manifest["digest"]])["layers"][0]
    path = registry.blob_path(layer["digest"])
    path.write_bytes(bytes(layer["size"]))
    with pytest.raises(InvalidArgument, match="a digest is wrong"):
        await store.pull(name)
    config = json.loads(lying.blobs[lying.manifest["digest"]])["config"]
    document = json.loads(lying.blobs[config["digest"]])
    document["rootfs"]["diff_ids"] = [f"sha256:{'0' * 64}"]
    manifest = json.loads(lying.blobs[lying.manifest["digest"]])
    manifest["config"] = lying.add(json.dumps(document).encode(), config["mediaType"])
    lying.manifest = lying.add(json.dumps(manifest).encode(), lying.manifest["mediaType"])
    with pytest.raises(InvalidArgument, match="not what the configuration says"):
        await store.pull(registry.push(lying, "lying:1"))
    assert [name for name in left(store) if not name.startswith("blobs/")] == []
    await store.prune()
    assert left(store) == []


async def test_many_callers_and_processes_download_a_layer_once(
    registry: Registry, store: ImageStore, folder: Path
) -> None:
    name = registry.push(make_image([tree("large", LARGE)]), "large:1")
    async with asyncio.timeout(100):
        images = await asyncio.gather(
            *(store.pull(name) for _ in range(8)), *(_pull_elsewhere(store, name) for _ in range(2))
        )
    assert len({getattr(image, "digest", image) for image in images}) == 1
    assert len(list((store.directory / "layers").iterdir())) == 1


async def _pull_elsewhere(store: ImageStore, name: str) -> str:
    process = await _start_pull(store, name)
    output, _ = await process.communicate()
    return output.decode().strip()


async def _start_pull(store: ImageStore, name: str) -> asyncio.subprocess.Process:
    settings: Any = {key: str(value) for key, value in store.settings.model_dump().items() if isinstance(value, Path)}
    code = (
        "import asyncio, json, sys; from pathlib import Path;"
        "from sandmeshd.images.settings import ImageSettings; from sandmeshd.images.store import ImageStore;"
        "store = ImageStore(ImageSettings(**json.loads(sys.argv[1])), Path('.'));"
        "print(asyncio.run(store.pull(sys.argv[2])).digest)"
    )
    command = (sys.executable, "-c", code, json.dumps(settings), name)
    return await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)


async def test_a_pull_that_is_killed_goes_on_where_it_was(registry: Registry, store: ImageStore, folder: Path) -> None:
    made = make_image([tree("large", LARGE), tree("second", LARGE[::-1])])
    name = registry.push(made, "killed:1")
    layer = json.loads(made.blobs[made.manifest["digest"]])["layers"][0]
    for _ in range(2):
        process = await _start_pull(store, name)
        async with asyncio.timeout(60):
            while not any((store.directory / "partial").glob("*")) and process.returncode is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    half = store.directory / "partial" / layer["digest"].removeprefix("sha256:")
    half.write_bytes(made.blobs[layer["digest"]][: 3 << 20])
    (store.directory / "blobs" / half.name).unlink(missing_ok=True)
    remove_tree(store.directory / "layers" / "x")
    for path in (store.directory / "layers").iterdir():
        remove_tree(path)
    registry.blob_path(layer["digest"]).write_bytes(bytes(3 << 20) + made.blobs[layer["digest"]][3 << 20 :])
    image = await store.pull(name)
    assert (image.layers[0] / "etc" / "large").read_bytes() == LARGE
    assert list((store.directory / "partial").iterdir()) == []


async def test_a_lost_connection_is_replaced_by_one_from_where_it_was(registry: Registry, folder: Path) -> None:
    made = make_image([tree("cut", LARGE)])
    registry.push(made, "cut:1")
    async with _cutting(registry.host, after=1 << 20) as (host, cuts):
        credentials = folder / "config.json"
        credentials.write_text(json.dumps({"auths": {host: {"username": USER, "password": PASSWORD}}}))
        store = ImageStore(registry.settings(folder / "images", image_credentials=credentials), folder)
        image = await store.pull(f"{host}/cut:1")
    assert (image.layers[0] / "etc" / "cut").read_bytes() == LARGE
    assert len(cuts) == 3


@asynccontextmanager
async def _cutting(host: str, after: int) -> AsyncGenerator[tuple[str, list[int]]]:
    """Yield an address that leads to another, and a list of the connections that it cut after so many bytes."""
    cuts: list[int] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> None:
        carried = 0
        with suppress(OSError):
            while carried < most and (data := await reader.read(1 << 16)):
                carried += len(data)
                writer.write(data)
                await writer.drain()
            if carried >= most:
                cuts.append(carried)
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, _, port = host.partition(":")
        there, back = await asyncio.open_connection(address, int(port))
        most = after if len(cuts) < 3 else 1 << 40
        await asyncio.gather(carry(reader, back, 1 << 40), carry(there, writer, most))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", cuts


async def test_mirrors_are_tried_first_and_then_the_registry(registry: Registry, folder: Path) -> None:
    made = make_image([tree("mirrored")])
    registry.push(made, "library/mirrored:1")
    mirrors = ("docker.io=https://127.0.0.1:1", f"docker.io=https://{registry.host}")
    store = ImageStore(registry.settings(folder / "images", image_mirrors=mirrors), folder)
    image = await store.pull("mirrored:1")
    assert (image.reference, image.digest) == ("docker.io/library/mirrored:1", made.manifest["digest"])


async def test_the_policy_names_what_is_allowed(registry: Registry, folder: Path) -> None:
    name = registry.push(make_image([tree("policy")]), "allowed/one:1")
    patterns = (f"{registry.host}/allowed/*",)
    store = ImageStore(registry.settings(folder / "images", image_registries=patterns), folder)
    image = await store.pull(name)
    with pytest.raises(PermissionDenied, match="SANDMESH_IMAGE_REGISTRIES"):
        await store.pull("python:3.12-slim")
    with pytest.raises(PermissionDenied, match="SANDMESH_IMAGE_REGISTRIES"):
        await store.pull(f"oci:{folder}")
    strict = ImageStore(registry.settings(folder / "images", image_digests_only=True), folder)
    with pytest.raises(PermissionDenied, match="SANDMESH_IMAGE_DIGESTS_ONLY"):
        strict.find(name)
    await strict.pull(f"{registry.host}/allowed/one@{image.digest}")


async def test_images_in_use_stay_and_others_go_from_the_least_used_on(registry: Registry, store: ImageStore) -> None:
    shared = tree("shared", LARGE)
    names = [registry.push(make_image([shared, tree(f"own{n}")]), f"kept/{n}:1") for n in range(3)]
    images = [await store.pull(name) for name in names]
    held = store.hold(images[0])
    with pytest.raises(WrongState, match="a sandbox uses the image"):
        await store.remove(names[0])
    os.utime(store.directory / "uses" / images[1].digest.removeprefix("sha256:"), (1, 1))
    freed = await store.prune(unused_seconds=3600)
    assert freed.references == [names[1]]
    freed = await store.prune()
    assert freed.references == [names[2]]
    assert (store.find(names[0]), store.find(names[2])) == (images[0], None)
    assert (images[0].layers[0] / "etc" / "shared").stat().st_size == len(LARGE)
    os.close(held)
    await store.remove(names[0])
    assert left(store) == []
    with pytest.raises(InvalidArgument, match="was removed"):
        store.hold(images[0])


async def test_what_is_over_the_limit_of_all_images_goes_after_a_pull(registry: Registry, folder: Path) -> None:
    store = ImageStore(registry.settings(folder / "images", images_bytes=14 << 20), folder)
    first = await store.pull(registry.push(make_image([tree("first", LARGE)]), "over/1:1"))
    os.utime(store.directory / "uses" / first.digest.removeprefix("sha256:"), (1, 1))
    second = await store.pull(registry.push(make_image([tree("second", LARGE)]), "over/2:1"))
    assert store.list_all() == [second]


async def test_what_is_larger_than_the_limit_is_refused_before_it_is_downloaded(
    registry: Registry, folder: Path
) -> None:
    store = ImageStore(registry.settings(folder / "images", image_bytes=1 << 20), folder)
    with pytest.raises(TooLarge, match="SANDMESH_IMAGE_BYTES"):
        await store.pull(registry.push(make_image([tree("big", LARGE)]), "big:1"))
    assert not any(one.startswith(("layers", "partial", "references")) for one in left(store))


async def test_an_image_is_imported_and_pushed_and_pulled_elsewhere(
    registry: Registry, store: ImageStore, folder: Path
) -> None:
    root = folder / "root.tar.gz"
    root.write_bytes(gzip.compress(tree("imported", b"content")))
    image = await store.import_image(root, "mine:1")
    assert image.reference == "docker.io/library/mine:1"
    assert "PATH" in image.config.env
    pushed = await store.push(image, f"{registry.host}/mine:1")
    other = ImageStore(registry.settings(folder / "other"), folder)
    pulled = await other.pull(pushed)
    assert (pulled.layers[0] / "etc" / "imported").read_bytes() == b"content"
    with pytest.raises(InvalidArgument, match="can be pushed"):
        await store.push(image, f"oci:{folder}")


async def test_a_full_disk_leaves_nothing_half(registry: Registry, folder: Path) -> None:
    with mounted(folder / "small", "size=8m") as small:
        store = ImageStore(registry.settings(small / "images"), folder)
        with pytest.raises(RuntimeUnavailable, match="the disk is full"):
            await store.pull(registry.push(make_image([tree("full", LARGE), tree("more", LARGE)]), "full:1"))
        assert not any(one.startswith(("layers", "references")) for one in left(store))
        await store.prune()
        assert left(store) == []


@contextmanager
def mounted(path: Path, options: str) -> Generator[Path]:
    """Yield a directory in memory."""
    path.mkdir()
    subprocess.run(["/usr/bin/mount", "-t", "tmpfs", "-o", options, "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["/usr/bin/umount", "--lazy", path], check=True)


def test_the_commands_of_the_page_work_as_they_stand_there(registry: Registry, folder: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "images.md"
    (folder / "root.tar").write_bytes(tree("page"))
    settings = registry.settings(folder / "images")
    variables = {
        **{f"SANDMESH_{name.upper()}": str(getattr(settings, name)) for name in ("images", "image_certificates")},
        "SANDMESH_IMAGE_CREDENTIALS": str(settings.image_credentials),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "ROOT": str(folder / "root.tar"),
        "REGISTRY": registry.host,
    }
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        script = ("/bin/bash", "-euo", "pipefail", "-c", block)
        done = subprocess.run(script, env=variables, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{registry.host}/team/demo@sha256:" in done.stdout
