"""The text of displayed objects that have none: what a reader without a browser gets of HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

LONGEST: Final = 4_000
"""The most characters of a text that was made of another form."""
LARGEST_FORM: Final = 16 << 20
"""A form of a displayed object that is larger is left out, with a note."""
LONGEST_OWN: Final = 65_536
"""The most characters of the text of an object that has other forms, too."""
_READ: Final = 1 << 20
"""How much of HTML is looked at."""
_OPAQUE: Final = re.compile(r"<(?:IPython\.core\.display\.|[\w.]+ (?:object )?at 0x[0-9a-f]+>)")
"""The text of objects without one."""
_MARKUP: Final = re.compile(r"\s*<(?:!doctype|!--|[a-z][a-z0-9]*[\s/>]).*(?:</\w|/>)", re.DOTALL | re.IGNORECASE)
"""The text of objects that say their HTML."""
_AS_THEY_ARE: Final = ("text/markdown", "text/latex", "application/json")
_FLAGS: Final = re.DOTALL | re.IGNORECASE
_UNSEEN: Final = re.compile(
    r"<(script|style|head|template|svg)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_CELL_END: Final = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
_LINE_END: Final = re.compile(
    r"<br\b[^>]*>|</(?:tr|p|div|li|h[1-6]|caption|table|pre|ul|ol|section)\s*>", re.IGNORECASE
)
# What was cut may end within one, such as a picture's.
_TAG: Final = re.compile(r"<[^<>]*>|<[a-zA-Z/!][^<>]*\Z")
_IF_UNSEEN: Final = re.compile(
    r"^.*\b(?:is your notebook trusted|make this notebook trusted)\b.*$", re.MULTILINE | re.IGNORECASE
)
"""What maps and tables say where a browser does not show them."""
_SPACES: Final = re.compile(r"[ \t\r\f\v]+")
_LINES: Final = re.compile(r"\s*\n\s*")


def text_of(plain: Any, forms: Mapping[str, Any]) -> str:
    """Return an object's text: its own, or what its other forms say, bounded."""
    text = "" if plain is None else str(plain)
    html = forms.get("text/html")
    if text and not _OPAQUE.match(text) and not (isinstance(html, str) and _is_for_programs(text)):
        return _bounded(text, LONGEST_OWN)
    for kind in _AS_THEY_ARE:
        if kind in forms:
            form = forms[kind]
            return _bounded(form if isinstance(form, str) else json.dumps(form))
    if isinstance(html, str):
        read = _read(html[:_READ])
        if len(html) > LARGEST_FORM:
            # A note follows in place of the form.
            return read[:LONGEST]
        return _bounded(read) or _bounded(text) or _note("text/html", html)
    return _bounded(text) or next(_note(kind, form) for kind, form in forms.items())


def _is_for_programs(text: str) -> bool:
    """Return whether a text is markup, or a long one of nested objects of which some have none."""
    return bool(_MARKUP.match(text[:_READ])) or (len(text) > LONGEST and " object at 0x" in text)


def _read(html: str) -> str:
    unescape: Any = import_module("html").unescape
    seen = _UNSEEN.sub(" ", html).replace("\n", " ")
    lined = _LINE_END.sub("\n", _CELL_END.sub("  ", seen))
    read: str = unescape(_TAG.sub("", lined))
    return _LINES.sub("\n", _SPACES.sub(" ", _IF_UNSEEN.sub("", read))).strip()


def _bounded(text: str, most: int = LONGEST) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]}\n[{left:,} characters left out: the whole is in the result's forms]"


def _note(kind: str, form: Any) -> str:
    size = len(form) if isinstance(form, str) else len(str(form))
    return f"[{kind} of {size:,} characters, in the result's forms]"
