"""The bubblewrap driver, the exec way: one bwrap a sandbox. Needs no privilege, no daemon and no image.

Its runtime is the mesh's state directory: one folder a sandbox, with a lock that the sandbox's PID 1 holds.
"""

from sandmeshd.drivers.bubblewrap.app import build_system, has_system, open_driver, sweep_state
from sandmeshd.drivers.bubblewrap.images.source import check_build, check_pull
from sandmeshd.drivers.bubblewrap.images.steps import open_runner
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings

__all__ = [
    "BubblewrapSettings",
    "build_system",
    "check_build",
    "check_pull",
    "has_system",
    "open_driver",
    "open_runner",
    "sweep_state",
]
