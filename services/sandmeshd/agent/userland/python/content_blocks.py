"""The content blocks of what user code displays: mime bundles and texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandmeshd.agent.userland.python import charts, kernel_protocol

IMAGES: Final = ("image/png", "image/jpeg")
SHOWN: Final = ("text/plain", "text/html", "text/markdown", "text/latex", "application/json", "image/svg+xml", *IMAGES)
"""The types that objects are asked for."""

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_quoted: Final = json.encoder.encode_basestring_ascii
_OPAQUE: Final = "<IPython.core.display."


def encode(block: Mapping[str, Any]) -> bytes:
    """Return a block's JSON."""
    return _ENCODER.encode(block).encode()


def texts(content: str, description: str, annotations: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """Yield a text's blocks: one, or more that belong together where it is long."""
    content = content.encode("utf-8", "backslashreplace").decode()
    if annotations is None and len(content) <= kernel_protocol.MAX_TEXT:
        yield b'{"type":"text","text":%b,"annotations":null,"description":"%b"}' % (
            _quoted(content).encode(),
            description.encode(),
        )
        return
    yield encode(_text(content[: kernel_protocol.MAX_TEXT], description, annotations))
    for start in range(kernel_protocol.MAX_TEXT, len(content), kernel_protocol.MAX_TEXT):
        yield encode(_text(content[start : start + kernel_protocol.MAX_TEXT], description, {"continues": True}))


def _text(content: str, description: str, annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"type": "text", "text": content, "annotations": annotations, "description": description}


def bundle(data: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the blocks of one displayed object: its image, or else its text with its other forms as annotations."""
    images = [encode(_image(kind, data[kind], data.get(charts.KIND))) for kind in IMAGES if kind in data]
    if images:
        yield from (image if len(image) <= kernel_protocol.MAX_PAYLOAD else _too_large(image) for image in images[:1])
        return
    forms = {kind: form for kind, form in data.items() if kind != "text/plain"}
    plain = str(data.get("text/plain", ""))
    kept = {kind: form for kind, form in forms.items() if len(encode({"": form})) <= kernel_protocol.MAX_TEXT}
    if forms and (not plain or plain.startswith(_OPAQUE)):
        plain = _best(forms)
    yield from texts(plain, "stdout", kept or None)


def _image(kind: str, data: str | bytes, chart: Any) -> dict[str, Any]:
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    fits = chart is not None and len(encode(chart)) <= kernel_protocol.MAX_TEXT
    forms = {charts.KIND: chart} if fits else None
    return {"type": "image", "data": encoded.strip(), "mimeType": kind, "annotations": forms, "description": "stdout"}


def _too_large(image: bytes) -> bytes:
    note = f"[An image of {len(image)} bytes was left out: it is too large to show. Save it to a file instead.]\n"
    return encode(_text(note, "stderr", None))


def _best(forms: Mapping[str, Any]) -> str:
    form = next(iter(forms.values()))
    return form if isinstance(form, str) else json.dumps(form)
