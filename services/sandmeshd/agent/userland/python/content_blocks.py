"""The content blocks of what user code displays: mime bundles and texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from sandmeshd.agent.userland.python import charts, kernel_protocol, plain_forms

IMAGES: Final = ("image/png", "image/jpeg")
SHOWN: Final = ("text/plain", "text/html", "text/markdown", "text/latex", "application/json", "image/svg+xml", *IMAGES)
"""The types that objects are asked for."""

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_quoted: Final = json.encoder.encode_basestring_ascii
DISPLAY: Final = "sandmesh/display"
"""In a block's `_meta`: the id of the display that it belongs to."""
REPLACES: Final = "sandmesh/replaces"
"""In a block's `_meta`: the id of the display that it replaces, or EVERYTHING that came before."""
EVERYTHING: Final = "*"
_LONGEST_ID: Final = 256


CLEARED: Final = b'{"type":"text","text":"","_meta":{"sandmesh/replaces":"*"}}'
"""The block in whose place is what follows, and in no way what came before."""


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
    images = [encode(_image(kind, data[kind], data)) for kind in IMAGES if kind in data]
    if images:
        yield from (image if len(image) <= kernel_protocol.MAX_PAYLOAD else _too_large(image) for image in images[:1])
        return
    data = {kind: base64.b64encode(form).decode() if isinstance(form, bytes) else form for kind, form in data.items()}
    forms = {kind: form for kind, form in data.items() if kind != "text/plain"}
    plain = data.get("text/plain")
    if not forms:
        yield from texts(str(plain or ""), "stdout")
        return
    large = {kind: size for kind, form in forms.items() if (size := _size(form)) > kernel_protocol.MAX_TEXT}
    kept = {kind: form for kind, form in forms.items() if kind not in large}
    text = plain_forms.text_of(plain, forms)
    if text != plain:
        # What the object itself said, for those who tell: None where that is nothing.
        if _size(plain) > kernel_protocol.MAX_TEXT:
            large["text/plain"] = _size(plain)
        else:
            kept["text/plain"] = plain
    yield from texts(text, "stdout", kept or None)
    for kind, size in large.items():
        form = data[kind]
        if size <= plain_forms.LARGEST_FORM:
            is_text = isinstance(form, str) and not kind.endswith("json")
            yield from _more(kind, form if is_text else _ENCODER.encode(form))
        else:
            yield encode(_text(_left_out(f"{kind} form", size, plain_forms.LARGEST_FORM), "stderr", None))


def of_display(blocks: Iterable[bytes], display: str, *, replaces: bool) -> Iterator[bytes]:
    """Yield blocks as those of a display with an id; with `replaces` they stand in the place of its last ones."""
    meta = {DISPLAY: display[:_LONGEST_ID]} | ({REPLACES: display[:_LONGEST_ID]} if replaces else {})
    for number, block in enumerate(blocks):
        yield block if number else encode({**json.loads(block), "_meta": meta})


def _size(form: Any) -> int:
    return len(form) if isinstance(form, str) else len(encode({"": form}))


def _more(kind: str, form: str) -> Iterator[bytes]:
    """Yield a form that is too long for one block, in parts that go on with the block before; JSON as its text."""
    form = form.encode("utf-8", "backslashreplace").decode()
    for start in range(0, len(form), kernel_protocol.MAX_TEXT):
        part = form[start : start + kernel_protocol.MAX_TEXT]
        yield encode(_text(part, "stdout", {"continues": True, "form": kind}))


def _image(kind: str, image: str | bytes, data: Mapping[str, Any]) -> dict[str, Any]:
    encoded = image if isinstance(image, str) else base64.b64encode(image).decode()
    forms = {name: data[name] for name in ("text/plain", charts.KIND) if name in data}
    forms = {name: form for name, form in forms.items() if _size(form) <= kernel_protocol.MAX_TEXT}
    return {
        "type": "image",
        "data": encoded.strip(),
        "mimeType": kind,
        "annotations": forms or None,
        "description": "stdout",
    }


def _too_large(image: bytes) -> bytes:
    return encode(_text(_left_out("image", len(image), kernel_protocol.MAX_PAYLOAD), "stderr", None))


def _left_out(what: str, size: int, most: int) -> str:
    why = f"it is too large to show (at most {most:,})"
    return f"[The {what} of {size:,} bytes was left out: {why}. Save it to a file instead.]\n"
