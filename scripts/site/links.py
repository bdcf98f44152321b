"""The links of a built site: each must lead to a file of it, and to an anchor that the page has."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_ATTRIBUTES: Final = {"a": "href", "img": "src", "link": "href", "script": "src"}


@dataclass
class HtmlPage(HTMLParser):
    """The links and anchors of a page."""

    targets: set[str] = field(default_factory=set[str])
    anchors: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element links to and what it is called."""
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        target = values.get(_ATTRIBUTES.get(tag, ""))
        if target and values.get("rel") != "canonical":
            self.targets.add(target)


def read_site(site: Path) -> dict[Path, HtmlPage]:
    """Return the pages of a site by their files."""
    pages: dict[Path, HtmlPage] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = HtmlPage()
        pages[path].feed(path.read_text())
    return pages


def dead_links(site: Path) -> list[str]:
    """Return the links of a site that lead nowhere, each with its page; links to other sites are not followed."""
    pages, dead = read_site(site), list[str]()
    for path, page in pages.items():
        # Its links are those of the site's root, wherever it is served.
        if path.name == "404.html":
            continue
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = _file(site, path, unquote(parts.path))
            if not file.is_file():
                dead.append(f"{path.relative_to(site)}: {target} is not a file")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                dead.append(f"{path.relative_to(site)}: {target} has no such anchor")
    return dead


def foreign_origins(site: Path) -> list[str]:
    """Return what pages load from other hosts."""
    found: list[str] = []
    for path in sorted(site.rglob("*.html")):
        page = _Loaded()
        page.feed(path.read_text())
        found += [f"{path.relative_to(site)}: {one}" for one in sorted(page.loaded)]
    return found


class _Loaded(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        loads = tag in {"script", "img", "iframe"} or (tag == "link" and values.get("rel") in {"stylesheet", "preload"})
        target = values.get("src") or values.get("href") or ""
        if loads and urlsplit(target).netloc:
            self.loaded.add(target)


def _file(site: Path, page: Path, where: str) -> Path:
    found = (
        page if not where else (site / where.lstrip("/") if where.startswith("/") else page.parent / where).resolve()
    )
    return found / "index.html" if found.is_dir() else found
