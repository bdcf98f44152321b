"""What the door's programs in sandboxes reply: JSON on their standard output, which user code may have written."""

from __future__ import annotations

import json
from typing import Any, cast

from sandmeshd.facades.e2b.errors import ApiError


def result_of(output: bytes, failure: str) -> Any:
    """Return the result of a program.

    Raises:
        OSError: The sandbox's system refused what it did.
        ApiError: The output is not a reply; `failure` says what could not be done.
    """
    try:
        # File names that are not UTF-8 come as escaped surrogates, which stricter parsers refuse.
        reply: object = json.loads(output)
    except (ValueError, RecursionError):
        reply = None
    found = cast("dict[str, Any]", reply) if isinstance(reply, dict) else {}
    if isinstance(found.get("errno"), int):
        raise OSError(found["errno"], str(found.get("message")))
    if "result" not in found:
        raise ApiError(500, f"{failure}: {output[:1000].decode(errors='replace')}")
    return found["result"]
