"""An HTTP server that speaks what is used of Alibaba Cloud's OSS and checks signatures: theirs cannot be installed.

The signature is that of https://www.alibabacloud.com/help/en/oss/developer-reference/ (version 1, in a header).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

KEY_ID, SECRET, BUCKET = "your-access-key-id", "your-access-key-secret", "your-bucket-name"


class Oss:
    """One bucket, in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Serve a request, if it is signed with the secret and about the bucket."""
        path = unquote(request.rel_url.raw_path)
        bucket, _, key = path.removeprefix("/").partition("/")
        if request.headers.get("Authorization") != f"OSS {KEY_ID}:{_signature(request, path)}":
            return _error(403, "SignatureDoesNotMatch")
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        return await self._of_object(request, key) if key else self._listed(request.query.get("prefix", ""))

    async def _of_object(self, request: web.Request, key: str) -> web.Response:
        if request.method == "PUT":
            self.objects[key] = await request.read()
            return web.Response()
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        return web.Response(body=self.objects[key]) if key in self.objects else _error(404, "NoSuchKey")

    def _listed(self, prefix: str) -> web.Response:
        found = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>1</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in self.objects.items()
            if key.startswith(prefix)
        ]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
        return web.Response(text=text, content_type="application/xml")


def _error(status: int, code: str) -> web.Response:
    return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")


def _signature(request: web.Request, path: str) -> str:
    headers = [request.headers.get(name, "") for name in ("Content-MD5", "Content-Type", "Date")]
    text = "\n".join([request.method, *headers, path])
    return base64.b64encode(hmac.digest(SECRET.encode(), text.encode(), hashlib.sha1)).decode()


@asynccontextmanager
async def oss_server() -> AsyncGenerator[Oss]:
    """Run one and give it, with its address."""
    oss = Oss()
    application = web.Application(client_max_size=64 << 20)
    application.router.add_route("*", "/{path:.*}", oss.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (port,) = {address[1] for address in runner.addresses}
    oss.address = f"http://127.0.0.1:{port}"
    try:
        yield oss
    finally:
        await runner.cleanup()
