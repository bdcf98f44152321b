"""A real registry on loopback, with TLS and a password: Debian's docker-registry, with what it holds in a directory."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import trustme

from sandmeshd.images.settings import ImageSettings
from tests.image_layouts import MadeImage
from tests.ports import free_port

USER, PASSWORD = "ann", "correct horse"

_CONFIGURATION = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {folder}/server.pem, key: {folder}/server.key}}
auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}
"""


def lacking() -> str:
    """Return what a machine lacks for it, or an empty text."""
    programs = {"docker-registry": "docker-registry", "htpasswd": "apache2-utils"}
    packages = [package for program, package in programs.items() if shutil.which(program) is None]
    return f"not installed: apt-get install --no-install-recommends {' '.join(packages)}" if packages else ""


@dataclass(frozen=True)
class Registry:
    """One that runs: its host, its authority's certificate, and what it keeps."""

    host: str
    folder: Path

    @property
    def certificates(self) -> Path:
        return self.folder / "ca.pem"

    def settings(self, images: Path, **values: Any) -> ImageSettings:
        """Return the settings of a store that can use it."""
        login = {"auths": {self.host: {"auth": _basic()}}}
        credentials = self.folder / "config.json"
        credentials.write_text(json.dumps(login))
        facts: dict[str, Any] = {"image_certificates": self.certificates, "image_credentials": credentials, **values}
        return ImageSettings(images=images, **facts)

    def push(self, image: MadeImage, name: str, *, without: str = "") -> str:
        """Upload an image as it is, but for one blob; return its name with the registry's."""
        repository, _, tag = name.partition(":")
        manifests = {image.manifest["digest"], *(one["digest"] for one in image.children)}
        for digest, data in image.blobs.items():
            if digest not in manifests and digest != without:
                where = self.request("POST", f"{repository}/blobs/uploads/").headers["Location"]
                self.request("PUT", f"{where}&digest={digest}", data, "application/octet-stream")
        for one in (*image.children, image.manifest):
            wanted = tag if one is image.manifest else one["digest"]
            self.request("PUT", f"{repository}/manifests/{wanted}", image.blobs[one["digest"]], one["mediaType"])
        return f"{self.host}/{name}"

    def blob_path(self, digest: str) -> Path:
        """Return the file of a blob, which a test may damage."""
        number = digest.removeprefix("sha256:")
        return self.folder / "data/docker/registry/v2/blobs/sha256" / number[:2] / number / "data"

    def request(self, method: str, path: str, data: bytes = b"", kind: str = "") -> Any:
        url = path if "://" in path else f"https://{self.host}/v2/{path}"
        headers = {"Authorization": f"Basic {_basic()}", **({"Content-Type": kind} if kind else {})}
        request = Request(url, data=data, method=method, headers=headers)  # noqa: S310 - our own server
        return urlopen(request, context=_context(self.certificates))  # noqa: S310 - our own server


@contextmanager
def running_registry(folder: Path) -> Generator[Registry]:
    """Run one in a directory."""
    port = free_port()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(folder / "server.key"))
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    (folder / "server.pem").write_bytes(chain)
    with (folder / "htpasswd").open("w") as out:
        subprocess.run(["/usr/bin/htpasswd", "-Bbn", USER, PASSWORD], stdout=out, check=True)
    (folder / "config.yml").write_text(_CONFIGURATION.format(folder=folder, port=port))
    command = ["docker-registry", "serve", str(folder / "config.yml")]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            registry = Registry(f"127.0.0.1:{port}", folder)
            _wait(registry, process)
            yield registry
        finally:
            process.terminate()


def _wait(registry: Registry, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            registry.request("GET", "")
        except URLError:
            assert process.poll() is None, (registry.folder / "log").read_text()
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the registry does not answer")


def _basic() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _context(certificates: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates))
