"""Addresses as users write them, and the mesh that is found without one."""

from __future__ import annotations

import socket
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from sandmesh._client.addresses import DialTarget, answers, configured, parse
from sandmesh.errors import InvalidArgument
from sandmesh.shared.paths import gateway_socket
from sandmeshd.runtime.paths import MeshPaths


@pytest.mark.parametrize(
    ("address", "name", "secure", "proxied"),
    [
        ("unix:///run/a/s", "unix:/run/a/s", False, False),
        ("unix:/run/a/s", "unix:/run/a/s", False, False),
        ("127.0.0.1:80", "127.0.0.1:80", False, False),
        ("localhost:9", "localhost:9", False, False),
        ("grpc://mesh.example:8570", "mesh.example:8570", False, True),
        ("http://mesh.example", "mesh.example:80", False, True),
        ("http://mesh.example:8570/", "mesh.example:8570", False, True),
        ("https://mesh.example", "mesh.example:443", True, True),
        ("grpc://[::1]:80", "[::1]:80", False, False),
    ],
)
def test_every_form_of_address_is_taken(address: str, name: str, secure: bool, proxied: bool) -> None:
    assert parse(address) == DialTarget(address, name, secure, proxied)


@pytest.mark.parametrize(
    "address", ["", "mesh.example", "ftp://a:1", "grpc://:80", "grpc://a", "http://a:1/path", "grpc://a:99999", "a:b"]
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(address: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        parse(address)


def test_the_address_that_is_passed_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDMESH_ADDRESS", "grpc://from.environment:1")
    assert configured("grpc://passed:1") == "grpc://passed:1"
    assert configured(None) == "grpc://from.environment:1"


def test_a_mesh_is_there_only_while_its_socket_answers(tmp_path: Path) -> None:
    path = tmp_path / "g"
    assert not answers(path)
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(path))
        listening.listen()
        assert answers(path)
    assert path.exists()
    assert not answers(path)


def test_a_local_mesh_is_found_where_the_environment_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDMESH_ADDRESS", raising=False)
    # A socket's path is short, and so is this.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("SANDMESH_RUNTIME_DIRECTORY", folder)
        monkeypatch.setenv("SANDMESH_MESH_ID", "mine")
        path = gateway_socket(Path(folder), "mine")
        path.parent.mkdir(parents=True)
        assert configured(None) is None
        with closing(socket.socket(socket.AF_UNIX)) as listening:
            listening.bind(str(path))
            listening.listen()
            assert configured(None) == f"unix://{path}"
            monkeypatch.delenv("SANDMESH_MESH_ID")
            assert configured(None) is None


def test_mesh_and_client_compute_the_same_socket(tmp_path: Path) -> None:
    assert MeshPaths("local", tmp_path, tmp_path / "r").gateway == gateway_socket(tmp_path / "r", "local")
