"""`sandmeshd`: one service of a mesh whose services run apart."""

from __future__ import annotations

from typing import NoReturn

from sandmeshd.cli.launcher import launch


def main() -> NoReturn:
    """Run the command line."""
    launch("sandmeshd", "sandmeshd.cli.service_app")


if __name__ == "__main__":
    main()
