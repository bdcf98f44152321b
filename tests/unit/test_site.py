"""The documentation's site: its navigation has every page, its links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from scripts.site import sdk_reference
from scripts.site.__main__ import BLOCKS, build, faults
from scripts.site.grpc_reference import read_protos
from scripts.site.links import dead_links, foreign_origins
from scripts.site.staging import CONFIGURATION, DOCS, OTHERS, ROOT, adapt, page_name

Navigation: TypeAlias = "str | list[Navigation] | dict[str, Navigation]"
PAGES = [page_name(path.relative_to(ROOT).as_posix()) for path in DOCS.rglob("*.md")]


def targets(entry: Navigation) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
        return
    for below in entry.values() if isinstance(entry, dict) else entry:
        yield from targets(below)


def test_the_navigation_has_every_page_once() -> None:
    nav = list(targets(tomllib.loads((DOCS / CONFIGURATION).read_text())["project"]["nav"]))
    packages = [file.package.split(".")[2] for file in read_protos().file]
    generated = [f"reference/grpc/{name}.md" for name in ("index", *packages)]
    generated += [f"reference/sdk/{name}.md" for name in ("index", *sdk_reference.PAGES, *sdk_reference.MODULES)]
    assert sorted(nav) == sorted([*PAGES, *OTHERS.values(), *generated, BLOCKS])


def test_the_reference_has_every_public_name() -> None:
    assert sdk_reference.left_out() == set()


def test_links_that_lead_out_of_the_pages_are_adapted(tmp_path: Path) -> None:
    text = "[a](../CONTRIBUTING.md#tests) [b](cli.md) ![c](demo.svg) [d](../examples/driver) `[e](../x.md)` [f](https://x.org)"
    assert adapt(text, "docs/drivers.md", tmp_path) == (
        "[a](contributing.md#tests) [b](cli.md) ![c](demo.svg) d `[e](../x.md)` [f](https://x.org)"
    )
    assert adapt("[a](docs/cli.md)", "CONTRIBUTING.md", tmp_path) == "[a](cli.md)"
    assert adapt("[a](../e2b.md)", "docs/integrations/crewai.md", tmp_path) == "[a](../e2b.md)"
    assert adapt("[a](../deploy/compose.yaml)", "docs/deploy.md", tmp_path) == "[a](files/deploy/compose.yaml.txt)"
    assert (tmp_path / "files/deploy/compose.yaml.txt").is_file()


def test_dead_links_and_foreign_origins_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="x"></h1><a href="b.html#y"></a><a href="c.html"></a><a href="#x"></a>')
    (tmp_path / "b.html").write_text('<script src="https://example.org/x.js"></script><a href="a.html#x"></a>')
    assert dead_links(tmp_path) == ["a.html: b.html#y has no such anchor", "a.html: c.html is not a file"]
    assert foreign_origins(tmp_path) == ["b.html: https://example.org/x.js"]


@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_dead_link(tmp_path: Path) -> None:
    site = build(tmp_path / "docs")
    assert faults(site) == []
    assert "run_ipython_cell" in (site / "reference" / "sdk" / "tools.html").read_text()
    assert len(list(site.rglob("*.html"))) > 100
