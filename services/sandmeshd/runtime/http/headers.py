"""Headers that a proxy passes on.

Hop-by-hop headers are those of https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1
"""

from __future__ import annotations

from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
    }
)


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return the end-to-end headers."""
    named = {name.strip().lower() for value in headers.getall("Connection", ()) for name in value.split(",")}
    drop = _HOP | named
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in drop)
