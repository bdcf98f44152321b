"""Credentials for registries, from where `docker login` and `podman login` keep them.

The file is Docker's config.json: `auths` with them, `credsStore` and `credHelpers` with programs that have them, which
speak the protocol of docker-credential-helpers: `docker-credential-NAME get`, the server's name in, JSON out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.images.reference import DOCKER_HUB

_HUB_KEYS: Final = ("https://index.docker.io/v1/", "index.docker.io", DOCKER_HUB, "registry-1.docker.io")
_LARGEST_FILE: Final = 4 << 20
_LARGEST_ANSWER: Final = 1 << 20
_HELPER: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HELPER_SECONDS: Final = 60
_TOKEN_USER: Final = "<token>"  # noqa: S105 - what helpers write in the place of a name

NoneAsEmpty = BeforeValidator(lambda value: {} if value is None else value)


class _Login(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    auth: str | None = None
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    identity_token: str | None = Field(default=None, alias="identitytoken", repr=False)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    logins: Annotated[dict[str, _Login], NoneAsEmpty] = Field(default_factory=dict, alias="auths")
    store: str | None = Field(default=None, alias="credsStore")
    helpers: Annotated[dict[str, str], NoneAsEmpty] = Field(default_factory=dict, alias="credHelpers")


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    username: str = Field(alias="Username")
    secret: str = Field(alias="Secret", repr=False)


@dataclass(frozen=True)
class Credentials:
    """A name with a password, or else a token that others are requested with (OAuth 2's refresh token)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    def basic(self) -> str:
        """Return the header of HTTP's basic authentication."""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


async def find_credentials(files: tuple[Path, ...], registry: str) -> Credentials | None:
    """Return the credentials for a registry in the first file that has some.

    Raises:
        InvalidArgument: A file is damaged.
        RuntimeUnavailable: A credential helper is not installed or fails.
    """
    for path in files:
        file = parse_credentials(await asyncio.to_thread(_read, path), path)
        if file is not None and (found := await _find(file, registry)) is not None:
            return found
    return None


def parse_credentials(data: bytes | None, path: Path) -> _File | None:
    """Parse a file of credentials; None where there is none.

    Raises:
        InvalidArgument: It is damaged; what is in it is not repeated.
    """
    if data is None:
        return None
    try:
        return _File.model_validate(json.loads(data))
    except (ValidationError, ValueError, RecursionError):
        message = f"{path} is not a file of Docker's credentials: correct it, or remove it and use `docker login`"
        raise InvalidArgument(message, {"path": str(path)}) from None


async def _find(file: _File, registry: str) -> Credentials | None:
    keys = _HUB_KEYS if registry == DOCKER_HUB else (registry, f"https://{registry}", f"https://{registry}/v1/")
    helper = next((file.helpers[key] for key in keys if key in file.helpers), file.store)
    if helper and (found := await _ask(helper, keys[0])) is not None:
        return found
    login = next((file.logins[key] for key in keys if key in file.logins), None)
    return None if login is None else to_credentials(login)


def to_credentials(login: _Login) -> Credentials | None:
    """Convert an entry of `auths`; one without anything in it says only that a helper has it.

    Raises:
        InvalidArgument: Its `auth` is not the base64 of a name and a password.
    """
    if login.identity_token:
        return Credentials(login.username or "", "", login.identity_token)
    if login.username and login.password:
        return Credentials(login.username, login.password)
    if not login.auth:
        return None
    try:
        name, colon, password = base64.b64decode(login.auth, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = name = password = ""
    if not colon:
        raise InvalidArgument("an `auth` in the file of Docker's credentials is damaged: use `docker login` again")
    return Credentials(name, password.rstrip("\0"))


async def _ask(helper: str, server: str) -> Credentials | None:
    """Return what a credential helper has for a server, None if it has nothing."""
    program = shutil.which(f"docker-credential-{helper}") if _HELPER.fullmatch(helper) else None
    if program is None:
        fix = f"install docker-credential-{helper}, or remove it from Docker's config.json"
        raise RuntimeUnavailable(f"the credential helper {helper!r} is not installed: {fix}", {"fix": fix})
    process = await asyncio.create_subprocess_exec(
        *(program, "get"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_HELPER_SECONDS):
            output, _ = await process.communicate(server.encode())
    except TimeoutError:
        raise RuntimeUnavailable(f"{program} does not answer", {"fix": f"try: echo {server} | {program} get"}) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return None
    return _parse_answer(output, program)


def _parse_answer(output: bytes, program: str) -> Credentials:
    try:
        answer = _Answer.model_validate_json(output[:_LARGEST_ANSWER])
    except ValidationError:
        message = f"{program} answers with what is not a credential"
        raise RuntimeUnavailable(message, {"fix": "update it, or remove it from Docker's config.json"}) from None
    if answer.username == _TOKEN_USER:
        return Credentials("", "", answer.secret)
    return Credentials(answer.username, answer.secret)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
