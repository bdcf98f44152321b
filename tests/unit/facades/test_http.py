"""Where a facade may listen for HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandmesh.errors import InvalidArgument, MeshUnavailable
from sandmeshd.facades.http import bind, socket_address
from sandmeshd.facades.mcp.settings import McpHttpSettings

OPEN: dict[str, Any] = {"listen": ("0.0.0.0:8580",)}
TLS: dict[str, Any] = {"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (OPEN, "there is no TLS"),
        ({**OPEN, **TLS, "require_token": False}, "no token is required"),
    ],
)
def test_an_address_that_is_open_to_others_needs_tls_and_tokens(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        McpHttpSettings(**settings).check_addresses("the adapter")
    McpHttpSettings(**settings, allow_insecure=True).check_addresses("the adapter")


def test_tokens_are_asked_for_where_others_could_come() -> None:
    assert McpHttpSettings(**OPEN).token_required
    assert McpHttpSettings(**TLS).token_required
    assert not McpHttpSettings().token_required
    assert McpHttpSettings(require_token=True).token_required


def test_an_address_that_cannot_be_listened_at_is_named() -> None:
    with bind("127.0.0.1:0") as bound, pytest.raises(MeshUnavailable, match=socket_address(bound)):
        bind(socket_address(bound))
    for wrong in ("8580", "127.0.0.1:", "127.0.0.1:http"):
        with pytest.raises(InvalidArgument, match="write host:port"):
            bind(wrong)
