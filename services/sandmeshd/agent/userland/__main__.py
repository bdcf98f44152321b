"""The program that runs beside user code: `python -I __main__.py MODULE FD...`, where the first is its control socket.

MODULE is `zygote`, the first process of a sandbox's nested namespaces, `template_process` or `image_template_process`,
which fork such processes, or `container_zygote`, the zygote of a container, which takes user code's account before its
descriptors; or a kernel of `languages`, such as `languages.bash`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Run the module. This package is found last, so that nothing beside it stands in for the template's own."""
    site = str(Path(__file__).parents[3])
    sys.path.append(site)
    import_module("sandmeshd.agent.userland.core.loader_variables").restore()
    module = sys.argv[1] if "." in sys.argv[1] else f"core.{sys.argv[1]}"
    import_module(f"sandmeshd.agent.userland.{module}").run(list(map(int, sys.argv[2:])), site)


if __name__ == "__main__":
    main()
