"""Build the documentation's site and check it: links, anchors, and that it loads nothing from elsewhere.

Run by `make docs`; DOCS=--serve also serves it at http://127.0.0.1:8000 until Ctrl-C. The pages are those of the
checkout's version, in a directory of its name; versions that the site has already stay.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from scripts.blocks.__main__ import page as blocks_page
from scripts.release.version import read_version
from scripts.site import grpc_reference, sdk_reference
from scripts.site.links import dead_links, foreign_origins
from scripts.site.staging import CONFIGURATION, ROOT, stage
from scripts.site.versions import add_version, versions_of

BUILD: Final = ROOT / "build" / "docs"
SITE: Final = ROOT / "build" / "site"
SECONDS: Final = 600
MOST_PRINTED: Final = 40
BLOCKS: Final = "code-blocks.md"
"""The page of the fates of all blocks of code, which only the site has."""


def build(folder: Path) -> Path:
    """Build the site below a directory, and return where it is.

    Raises:
        subprocess.CalledProcessError: The generator found something that is wrong.
    """
    pages = stage(folder)
    grpc_reference.write_reference(pages / "reference" / "grpc")
    sdk_reference.write_reference(pages / "reference" / "sdk")
    (pages / BLOCKS).write_text(blocks_page())
    zensical = str(Path(sys.executable).with_name("zensical"))
    command = [zensical, "build", "--clean", "--strict", "--config-file", str(folder / CONFIGURATION)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise SystemExit(f"zensical build ended with {done.returncode}:\n{(done.stdout + done.stderr)[-6000:]}")
    return folder / "site"


def faults(site: Path) -> list[str]:
    """Return what is wrong with a site."""
    return [*dead_links(site), *(f"from another host: {origin}" for origin in foreign_origins(site))]


def main() -> None:
    """Build and check the site."""
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve the site at http://127.0.0.1:8000 until Ctrl-C")
    parser.add_argument(
        "--into", type=Path, default=SITE, metavar="SITE", help="the site to add this version to; build/site by default"
    )
    options = parser.parse_args()
    started = time.monotonic()
    built = build(BUILD)
    found = faults(built)
    for fault in found[:MOST_PRINTED]:
        print(fault)
    pages = len([*built.rglob("*.html")])
    print(f"{pages} pages after {time.monotonic() - started:.0f} s, {len(found)} dead links")
    if found:
        raise SystemExit(1)
    try:
        added = add_version(built, read_version(), options.into)
    except ValueError as error:
        raise SystemExit(f"make docs: {error}") from None
    print(f"{added}, in a site of the versions {', '.join(versions_of(options.into))}")
    if options.serve:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(options.into))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 8000), handler) as server:
            print("http://127.0.0.1:8000/ until Ctrl-C", flush=True)
            server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
