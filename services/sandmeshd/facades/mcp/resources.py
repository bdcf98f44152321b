"""The files of a sandbox's workspace as resources of the Model Context Protocol.

A URI is `workspace:///` and the path below the workspace, with each byte that a URI cannot hold as %XX; a part of a
file has `?offset=N&length=M`, in bytes, after it. The sandbox itself refuses what leads out of the workspace, by `..`
or a link.
"""

from __future__ import annotations

import base64
import json
import mimetypes
import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from urllib.parse import quote, unquote_to_bytes

from mcp import MCPError, types

from sandmesh import SandboxAsync, SandmeshError
from sandmesh.files import FileInfo
from sandmesh.shared.numbers import decimal
from sandmeshd.facades.mcp.failures import RESOURCE_NOT_FOUND, file_error, mesh_error
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes

SCHEME = "workspace:///"
PAGE = 500
LARGEST = 16 << 20

# Deeper than people nest and far from what the sandbox refuses.
DEPTH = 64
_PART = re.compile(r"(?:offset=(?P<offset>[0-9]{1,15}))?&?(?:length=(?P<length>[0-9]{1,15}))?")


class WorkspaceResources:
    """Lists and reads the files of the sandbox in use."""

    def __init__(self, sandboxes: SessionSandboxes, largest_message: int = 0) -> None:
        self._sandboxes = sandboxes
        # As base64 three bytes of a file take four of a message.
        self._largest = min(LARGEST, largest_message * 3 // 4) if largest_message else LARGEST

    async def list(self) -> list[types.Resource]:
        """Return the files, by path; those below a name that begins with a dot are left out."""
        box = await self._box()
        if box is None:
            return []
        with failing(SCHEME):
            files = sorted(
                (file for file in await box.fs.list(".", DEPTH) if _is_shown(file)), key=lambda one: one.path
            )
        return [_resource(file) for file in files]

    async def read(self, uri: str) -> types.ReadResourceResult:
        """Return a file's text, or its bytes where it is not UTF-8.

        Raises:
            MCPError: It is not there, leads out of the workspace, is not a file, or is too large.
        """
        whole, offset, length = _part_of(uri)
        path = path_of(whole)
        box = await self.needed(uri)
        with failing(uri):
            wanted = length if length is not None else (await box.fs.stat(path)).size - offset
            if wanted > self._largest:
                fix = f"read it in parts, as {whole}?offset=0&length={self._largest}, or copy it with `sandmesh cp`"
                raise MCPError(types.INVALID_PARAMS, f"{uri} has {wanted} bytes, which is too large: {fix}")
            data = await box.fs.read(path, "bytes", offset=offset, length=length)
        return types.ReadResourceResult(contents=[_contents(uri, path, data, self._largest * 4 // 3)])

    async def needed(self, uri: str) -> SandboxAsync:
        """Return the sandbox that a file is in.

        Raises:
            MCPError: There is none yet, and so no file.
        """
        box = await self._box()
        if box is None:
            raise MCPError(RESOURCE_NOT_FOUND, f"{uri} is not there: there is no sandbox yet, call a tool first")
        return box

    async def _box(self) -> SandboxAsync | None:
        # A named session may have files from before.
        if self._sandboxes.settings.session is None:
            return self._sandboxes.current
        with failing(SCHEME):
            return await self._sandboxes.box()


def page(resources: Sequence[types.Resource], cursor: str | None) -> types.ListResourcesResult:
    """Return the page of a list that begins at a cursor.

    Raises:
        MCPError: It is none of this server's.
    """
    start = _offset(cursor)
    more = str(start + PAGE) if start + PAGE < len(resources) else None
    return types.ListResourcesResult(resources=[*resources[start : start + PAGE]], next_cursor=more)


TEMPLATE = types.ResourceTemplate(
    name="workspace", uri_template=f"{SCHEME}{{+path}}", description="A file of the sandbox's workspace."
)


def _part_of(uri: str) -> tuple[str, int, int | None]:
    whole, _, query = uri.partition("?")
    match = _PART.fullmatch(query)
    if match is None:
        raise MCPError(types.INVALID_PARAMS, f"{uri!r} has no part of a file: write {whole}?offset=0&length=1000")
    return whole, int(match["offset"] or 0), int(match["length"]) if match["length"] else None


def path_of(uri: str) -> str:
    """Return the path that a URI stands for, relative to the workspace.

    Raises:
        MCPError: It is none of ours.
    """
    path = os.fsdecode(unquote_to_bytes(uri.removeprefix(SCHEME)))
    if not uri.startswith(SCHEME) or not path or "\0" in path:
        raise MCPError(types.INVALID_PARAMS, f"{uri!r} is not a file of the workspace: write {SCHEME}path/of/the/file")
    return path


@contextmanager
def failing(uri: str) -> Generator[None]:
    """Raise what goes wrong inside as the protocol's errors."""
    try:
        yield
    except OSError as error:
        if isinstance(error, SandmeshError):
            raise mesh_error(error) from None
        raise file_error(error, uri) from None
    except SandmeshError as error:
        raise mesh_error(error) from None


def _is_shown(entry: FileInfo) -> bool:
    return entry.is_file and not any(part.startswith(".") for part in entry.path.split("/"))


def _resource(entry: FileInfo) -> types.Resource:
    return types.Resource(
        name=entry.path.encode(errors="backslashreplace").decode(),
        uri=SCHEME + quote(os.fsencode(entry.path)),
        mime_type=mimetypes.guess_type(entry.name)[0],
        size=entry.size,
        annotations=types.Annotations(last_modified=entry.modified.isoformat()),
    )


def _contents(uri: str, path: str, data: bytes, most: int) -> types.TextResourceContents | types.BlobResourceContents:
    kind = mimetypes.guess_type(path)[0]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or len(json.dumps(text, ensure_ascii=False).encode()) > most:
        blob = base64.b64encode(data).decode()
        return types.BlobResourceContents(uri=uri, mime_type=kind or "application/octet-stream", blob=blob)
    return types.TextResourceContents(uri=uri, mime_type=kind or "text/plain", text=text)


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    number = decimal(cursor, 1 << 48)
    if number is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown cursor {cursor[:200]!r}")
    return number
