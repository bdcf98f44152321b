"""Names of images, as Docker has them, and documents of registries."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import MOST_LAYERS, Manifest, ProgramConfig, parse_document, parse_manifest
from sandmeshd.images.image import to_image_config
from sandmeshd.images.reference import parse_reference
from sandmeshd.images.registry.authentication import Challenge, parse_challenge
from sandmeshd.images.registry.credentials import Credentials, find_credentials

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/owner/name", "docker.io/owner/name:latest"),
        ("owner/name:1", "docker.io/owner/name:1"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
        (f"ghcr.io/a/b:1@{DIGEST}", f"ghcr.io/a/b:1@{DIGEST}"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("[::1]:5000/a:b", "[::1]:5000/a:b"),
        ("docker://quay.io/a/b", "quay.io/a/b:latest"),
        ("oci:/a/b:name", "oci:/a/b:name"),
        ("tar:/root.tar.gz", "tar:/root.tar.gz"),
    ],
)
def test_short_names_are_dockers(text: str, whole: str) -> None:
    assert str(parse_reference(text)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Python",
        "a//b",
        "a:",
        "a b",
        "-a",
        "a@sha256:12",
        "a@sha512:12",
        "a:b:c",
        "../a",
        "http://a/b",
        "a/../b",
        "a\n",
        "x" * 2000,
        "tar:/a:b",
        "a.b:99999999/c",
    ],
)
def test_what_is_not_a_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_reference(text)


def test_a_familiar_name_is_the_short_one() -> None:
    assert parse_reference("docker.io/library/python:3").familiar == "python:3"


def test_what_a_configuration_lacks_has_defaults() -> None:
    whole = parse_document(b'{"config": {"Env": null, "Cmd": null, "Entrypoint": null, "Labels": null}}', ProgramConfig)
    config = to_image_config(whole)
    assert (config.env, config.cmd, config.working_dir, config.user) == ({}, (), "/", "")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"[" * 100_000, b'{"config": 1}', b'{"rootfs": {"diff_ids": ["md5:1"]}}', b" " * (5 << 20)],
)
def test_damaged_documents_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse_document(data, ProgramConfig)


def test_artifacts_and_too_many_layers_are_refused() -> None:
    blob = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": DIGEST, "size": 2}
    with pytest.raises(InvalidArgument, match="not an image"):
        parse_manifest(json.dumps({"config": blob, "layers": []}).encode())
    many = {"config": blob, "layers": [blob] * (MOST_LAYERS + 1)}
    with pytest.raises(InvalidArgument, match="layers"):
        parse_document(json.dumps(many).encode(), Manifest)


def test_challenges_are_parsed() -> None:
    header = 'Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull"'
    assert parse_challenge(header) == Challenge(
        "bearer", "https://auth.example/token", "registry", "repository:a/b:pull"
    )
    assert parse_challenge("Basic realm=x") == Challenge("basic")
    assert parse_challenge("Negotiate") is None


async def test_credentials_are_found_as_docker_keeps_them(tmp_path: Path) -> None:
    path, auth = tmp_path / "config.json", base64.b64encode(b"ann:pass:word").decode()
    hub = {"https://index.docker.io/v1/": {"auth": auth}, "ghcr.io": {"identitytoken": "t"}, "quay.io": {}}
    path.write_text(json.dumps({"auths": hub}))
    assert await find_credentials((tmp_path / "none", path), "docker.io") == Credentials("ann", "pass:word")
    assert await find_credentials((path,), "ghcr.io") == Credentials("", "", "t")
    assert await find_credentials((path,), "quay.io") is None
    path.write_text('{"auths": {"a": {"auth": "!"}}}')
    with pytest.raises(InvalidArgument, match="docker login"):
        await find_credentials((path,), "a")
    path.write_text("[]")
    with pytest.raises(InvalidArgument, match="credentials"):
        await find_credentials((path,), "a")
