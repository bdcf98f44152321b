"""The pages of the site, made from those of the repository: links that lead out of docs/ are adapted."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
OTHERS: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
"""Pages of the repository that the site has, too, by their name there."""
CONFIGURATION: Final = "zensical.toml"
# A link, whose label may have code, or code, in which nothing is a link.
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`\n]*`|\[[^\]]*\])*)\]\(([^()\s]+)\)|`[^`\n]*`")


def stage(folder: Path) -> Path:
    """Write the pages and the configuration into a new directory, and return that of the pages."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.md", CONFIGURATION))
    for source in [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OTHERS)]:
        name = page_name(source.relative_to(ROOT).as_posix())
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(adapt(source.read_text(), source.relative_to(ROOT).as_posix(), pages))
    shutil.copy(DOCS / CONFIGURATION, folder / CONFIGURATION)
    return pages


def page_name(path: str) -> str:
    """Return the name on the site of a page of the repository."""
    if path in OTHERS:
        return OTHERS[path]
    name = path.removeprefix("docs/")
    return name.removesuffix("README.md") + "index.md" if name.endswith("README.md") else name


def adapt(text: str, path: str, pages: Path) -> str:
    """Return a page's text with links as the site has them; `path` is the page's in the repository."""
    own = posixpath.dirname(page_name(path))

    def replaced(found: re.Match[str]) -> str:
        image, label, target = found.groups()
        if target is None or re.match(r"[a-z]+:|#", target):
            return found[0]
        where, _, anchor = target.partition("#")
        resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), where))
        name = _published(resolved, pages)
        if name is None:
            return label
        relative = posixpath.relpath(name, own or ".")
        return f"{image}[{label}]({relative}{'#' + anchor if anchor else ''})"

    return _outside_code(text, replaced)


def _outside_code(text: str, replace: Callable[[re.Match[str]], str]) -> str:
    pieces, last = list[str](), 0
    for block in re.finditer(r"^(`{3,}).*?^\1`*$", text, re.MULTILINE | re.DOTALL):
        pieces += [_LINK.sub(replace, text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*pieces, _LINK.sub(replace, text[last:])])


def _published(path: str, pages: Path) -> str | None:
    """Return the name on the site of a file of the repository, which is copied there; None for a directory."""
    source = ROOT / path
    if path.startswith("docs/") or path in OTHERS:
        return page_name(path)
    if path == "README.md":
        return "index.md"
    if not source.is_file():
        return None
    # A browser shows it in place of saving it.
    name = f"files/{path}" if source.suffix in {".png", ".svg"} else f"files/{path}.txt"
    (pages / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, pages / name)
    return name
