"""A real registry on loopback, with TLS and a password: Debian's docker-registry, with what it holds in a directory."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import jwt
import trustme

from sandmeshd.images.settings import ImageSettings
from tests.image_layouts import MadeImage
from tests.ports import free_port

USER, PASSWORD = "ann", "correct horse"

IDENTITY_TOKEN = "an identity"  # noqa: S105 - as above

_CONFIGURATION = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {folder}/server.pem, key: {folder}/server.key}}
auth: {auth}
"""
_PASSWORDS = "{{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}"
_TOKENS = "{{token: {{realm: '{realm}', service: test, issuer: test, rootcertbundle: {folder}/ca.pem}}}}"


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
        manifests = {image.manifest["digest"], *(child["digest"] for child in image.children)}
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
    with _serving(folder, port, _PASSWORDS.format(folder=folder)) as process:
        registry = Registry(f"127.0.0.1:{port}", folder)
        _wait(registry, process)
        yield registry


@contextmanager
def demanding_tokens(registry: Registry) -> Generator[str]:
    """Run another with the same images, which takes only tokens that are had by the password; yield its host."""
    folder, port = registry.folder, free_port()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_TokenHandler, folder)) as server:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        realm = f"https://127.0.0.1:{server.server_port}/token"
        try:
            with _serving(folder, port, _TOKENS.format(folder=folder, realm=realm)) as process:
                _wait(Registry(f"127.0.0.1:{port}", folder), process)
                yield f"127.0.0.1:{port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _serving(folder: Path, port: int, auth: str) -> Generator[subprocess.Popen[bytes]]:
    configuration = folder / f"{port}.yml"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=port, auth=auth))
    command = ["docker-registry", "serve", str(configuration)]
    with (folder / f"{port}.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()


class _TokenHandler(BaseHTTPRequestHandler):
    """Gives tokens for what is requested, to who knows the password or the identity token."""

    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._answer(self.headers.get("Authorization") == f"Basic {_basic()}", urlsplit(self.path).query)

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(parse_qs(form).get("refresh_token") == [IDENTITY_TOKEN], form)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of http.server
        """Write nothing."""

    def _answer(self, is_known: bool, form: str) -> None:
        self.send_response(200 if is_known else 401)
        self.end_headers()
        if is_known:
            self.wfile.write(json.dumps({"token": _token(self._folder, parse_qs(form))}).encode())


def _token(folder: Path, form: dict[str, list[str]]) -> str:
    kind, name, actions = form.get("scope", ["::"])[0].split(":")
    now = int(time.time())
    access = [{"type": kind, "name": name, "actions": actions.split(",")}]
    claims = {"iss": "test", "sub": USER, "aud": form["service"][0], "iat": now, "nbf": now - 9, "exp": now + 300}
    certificate = ssl.PEM_cert_to_DER_cert((folder / "server.pem").read_text().partition("\n-----BEGIN")[0] + "\n")
    headers = {"x5c": [base64.b64encode(certificate).decode()]}
    claims_of_access = {**claims, "jti": str(now), "access": access if name else []}
    return jwt.encode(claims_of_access, (folder / "server.key").read_text(), "ES256", headers)


def _wait(registry: Registry, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            registry.request("GET", "")
        except HTTPError:
            return
        except URLError:
            assert process.poll() is None, "the registry ended: see its log"
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the registry does not answer")


def _basic() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _context(certificates: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates))
