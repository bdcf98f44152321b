"""The files of the console's pages: its own, and those of packages of npm, unmodified.

`vendor/packages.json` lists the packages with their hashes; `scripts/console_packages.py` fetches and checks them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from sandmeshd.contracts.pages import scripts

PAGE: Final = Path(__file__).with_name("page")
VENDOR: Final = Path(__file__).with_name("vendor")
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


_PRELOADS: Final = b"PRELOADS"
"""What stands in the page for its modules, which a browser else finds one after the other."""


@cache
def files() -> dict[str, bytes]:
    """Return the files by their names, such as `app.js` and `xterm.css`."""
    paths = [*PAGE.iterdir(), *VENDOR.iterdir()]
    found = {path.name: path.read_bytes() for path in paths if path.suffix in TYPES}
    modules = ["preact.js", *sorted(path.name for path in PAGE.glob("*.js"))]
    links = "\n".join(f'<link rel="modulepreload" href="{name}">' for name in modules)
    found["index.html"] = found["index.html"].replace(_PRELOADS, links.encode())
    return found | scripts()
