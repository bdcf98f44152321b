"""`sandmesh`: the commands for people and scripts."""

from __future__ import annotations

from typing import NoReturn

from sandmeshd.cli.launcher import launch


def main() -> NoReturn:
    """Run the command line."""
    launch("sandmesh", "sandmeshd.cli.user_app")


if __name__ == "__main__":
    main()
