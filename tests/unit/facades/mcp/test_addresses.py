"""Where the MCP adapter may listen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandmesh.errors import InvalidArgument, MeshUnavailable
from sandmeshd.facades.mcp.addresses import bind, check_addresses, token_required, written
from sandmeshd.facades.mcp.settings import HttpSettings

OPEN: dict[str, Any] = {"listen": ("0.0.0.0:8580",)}
TLS: dict[str, Any] = {"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (OPEN, "there is no TLS"),
        ({**OPEN, **TLS, "require_token": False}, "no token is asked for"),
    ],
)
def test_an_address_that_is_open_to_others_needs_tls_and_tokens(told: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_addresses(HttpSettings(**told))
    check_addresses(HttpSettings(**told, allow_insecure=True))


def test_tokens_are_asked_for_where_others_could_come() -> None:
    assert token_required(HttpSettings(**OPEN))
    assert token_required(HttpSettings(**TLS))
    assert not token_required(HttpSettings())
    assert token_required(HttpSettings(require_token=True))


def test_an_address_that_cannot_be_listened_at_is_named() -> None:
    with bind("127.0.0.1:0") as bound, pytest.raises(MeshUnavailable, match=written(bound)):
        bind(written(bound))
    for wrong in ("8580", "127.0.0.1:", "127.0.0.1:http"):
        with pytest.raises(InvalidArgument, match="write host:port"):
            bind(wrong)
