"""The documentation's site: its navigation has every page, its links lead somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Generator, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.sync_api import expect, sync_playwright
from scripts.site import sdk_reference
from scripts.site.__main__ import BLOCKS, build, faults
from scripts.site.grpc_reference import read_protos
from scripts.site.links import dead_links, foreign_origins
from scripts.site.staging import CONFIGURATION, DOCS, OTHERS, ROOT, adapt, page_name
from scripts.site.versions import add_version, versions_of

from tests.mesh.console.person import CHROMIUM

Navigation: TypeAlias = "str | list[Navigation] | dict[str, Navigation]"
PAGES = [page_name(path.relative_to(ROOT).as_posix()) for path in DOCS.rglob("*.md")]
# What users ask most likely, and the page that answers it.
QUESTIONS = {
    "install a package in a sandbox": "network.html#install-packages-in-a-sandbox",
    "limit network": "network.html",
    "keep files between sessions": "quickstart.html#keep-files-between-sessions",
    "sandbox timed out": "troubleshooting.html#timeouts-a-call-or-a-sandbox-timed-out",
    "run without docker": "install.html#where-sandboxes-run-without-docker",
    "use E2B client": "e2b.html",
    "pause resume": "drivers.html#pause-and-resume-a-sandbox",
    "open a port": "ports.html",
    "GPU": "limits.html#gpus",
    "upgrade": "operate.html#upgrade-a-mesh",
    "upload file": "files.html",
    "memory limit": "limits.html",
    "API key": "secrets.html",
    "block internet access": "network.html",
    "sandbox pool": "operate.html#pools-sandboxes-kept-ready",
}
FIRST = 3


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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site, which takes half a minute to build."""
    return build(tmp_path_factory.mktemp("site") / "docs")


@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_dead_link(site: Path) -> None:
    assert faults(site) == []
    assert "run_ipython_cell" in (site / "reference" / "sdk" / "tools.html").read_text()
    assert len(list(site.rglob("*.html"))) > 100


@pytest.mark.timeout(300)
@pytest.mark.needs("node")
def test_its_search_finds_what_users_ask_among_the_first_results(site: Path) -> None:
    command = ["node", str(ROOT / "scripts/site/search.mjs"), str(site), *QUESTIONS]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    found = {question: json.loads(line)[:FIRST] for question, line in zip(QUESTIONS, lines, strict=True)}
    assert {question: found[question] for question, page in QUESTIONS.items() if page not in found[question]} == {}


@pytest.fixture(scope="module")
def versioned(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, str]]:
    """Serve a site of several versions; return its directory and address."""
    folder = tmp_path_factory.mktemp("versions") / "site"
    for version in ("0.1.0", "0.2.0.dev0", "0.10.0"):
        copy = shutil.copytree(site, folder.with_name("built"))
        if version == "0.1.0":
            (copy / "webhooks.html").unlink()
        add_version(copy, version, folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.timeout(300)
def test_a_version_is_added_and_earlier_ones_stay(versioned: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = versioned
    assert versions_of(folder) == ["0.10.0", "0.2.0.dev0", "0.1.0"]
    listed = json.loads((folder / "versions.json").read_text())
    assert [(row["version"], row["aliases"]) for row in listed] == [
        ("0.10.0", ["latest"]),
        ("0.2.0.dev0", []),
        ("0.1.0", []),
    ]
    assert "url=0.10.0/index.html" in (folder / "index.html").read_text()
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ValueError, match=r"has files, but no versions\.json"):
        add_version(tmp_path / "built", "0.1.0", tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.needs("chromium")
def test_a_reader_changes_the_version_and_keeps_the_page(versioned: tuple[Path, str]) -> None:
    _, address = versioned
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_page()
        page.goto(address)
        expect(page).to_have_url(f"{address}/0.10.0/index.html")
        page.goto(f"{address}/0.10.0/limits.html")
        expect(page.locator(".md-version__current")).to_have_text("0.10.0")
        # Its list opens over it, which the checks of an ordinary hover take for an obstacle.
        page.locator(".md-version__current").hover(force=True)
        expect(page.locator(".md-version__link")).to_have_text(["0.10.0", "0.2.0.dev0", "0.1.0"])
        page.locator(".md-version__link", has_text="0.1.0").click()
        expect(page).to_have_url(f"{address}/0.1.0/limits.html")
