"""axe-core (https://github.com/dequelabs/axe-core), which finds what keeps people out of a page."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.npm import install

PACKAGE = Path(__file__).resolve().parents[2] / "accessibility"
SERIOUS = """async dark => {
  const rules = dark ? {runOnly: ['color-contrast']} : {};
  const found = (await axe.run(document, {...rules, resultTypes: ['violations'], iframes: false})).violations;
  return found.filter(one => ['serious', 'critical'].includes(one.impact)).map(one => [one.id, one.nodes[0].html]);
}"""
"""Returns the serious findings of a page that has the program; of a dark one only those about contrast."""


def install_axe(folder: Path) -> str:
    """Install the package, and return its program."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PACKAGE / name, folder)
    install(folder, "npm")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
