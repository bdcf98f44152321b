"""The program of the nested namespaces' first process: `python -I __main__.py FD`, where FD is its control socket."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run the zygote. This package is found last, so that nothing beside it stands in for the template's own."""
    site = str(Path(__file__).parents[3])
    sys.path.append(site)
    import_module("sandmeshd.agent.inside.zygote").run(int(sys.argv[1]), site)


if __name__ == "__main__":
    main()
