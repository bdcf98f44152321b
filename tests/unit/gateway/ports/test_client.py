"""The HTTP client of exposed ports."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from sandmeshd.gateway.ports.client import open_session


async def test_a_redirect_of_a_websocket_leads_to_no_other_port() -> None:
    reached: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        reached.append(request.path)
        return web.Response(status=302, headers={"Location": f"http://{request.host}/another"})

    app = web.Application()
    app.router.add_get("/{path}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    try:
        async with open_session(aiohttp.TCPConnector()) as session:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="redirect") as refused:
                await session.ws_connect(URL.build(scheme="http", host=host, port=port, path="/one"))
    finally:
        await runner.cleanup()
    assert refused.value.status == 302
    assert reached == ["/one"]
