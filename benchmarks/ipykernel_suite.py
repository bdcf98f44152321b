"""ipykernel's own tests against a kernel of a sandbox: `python -m benchmarks.ipykernel_suite SDIST` prints the figures.

SDIST is `ipykernel-7.4.0.tar.gz` (`pip download --no-deps --no-binary ipykernel ipykernel==7.4.0`). Its tests that talk
to a kernel by messages are run, unmodified but for the functions that start one, for each test; a mesh must run. The
others are of ipykernel's own objects and sockets.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.environments import environment_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("ipykernel==7.4.0", "pytest", "pytest-asyncio>=0.23.5", "pytest-timeout", "flaky", "trio", "psutil")
MORE = ("matplotlib", "numpy", "ipyparallel")
FILES = ("test_kernel.py", "test_async.py", "test_message_spec.py")
OVERRIDE = "\nfrom benchmarks.ipykernel_client import new_kernel, start_new_kernel  # noqa\nkernel = new_kernel\n"
ENDS = re.compile(r"^(PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS) (\S+?)(?: - (.*))?$", re.MULTILINE)
SECONDS = 900


def run(sdist: Path, *options: str) -> str:
    """Run the tests; return what pytest writes."""
    python = environment_of(*PACKAGES, *MORE)
    with tempfile.TemporaryDirectory() as name:
        shutil.unpack_archive(sdist, name)
        folder = next(Path(name).glob("ipykernel-*"))
        with (folder / "tests" / "utils.py").open("a") as utils:
            utils.write(OVERRIDE)
        places = [ROOT, ROOT / "sdk", ROOT / "services"]
        variables = {**os.environ, "COLUMNS": "300", "PYTHONPATH": os.pathsep.join(map(str, places))}
        flags = ("-q", "-rA", "--tb=line", "-p", "no:cacheprovider", "--timeout=8", "-W", "ignore", "-o", "addopts=")
        tests = [str(folder / "tests" / file) for file in FILES]
        command = [str(python), "-m", "pytest", *flags, *tests, *options]
        ended = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        return ended.stdout + ended.stderr


def main() -> None:
    """Print each test that did not pass with its reason, and how many there are of each end."""
    text = run(Path(sys.argv[1]), *sys.argv[2:])
    found = ENDS.findall(text)
    if not found:
        sys.exit(text)
    for end, test, reason in sorted(found):
        if end != "PASSED":
            print(f"{end} {test.partition('::')[2]}: {reason[:160]}")
    print(dict(Counter(end for end, _, _ in found)))


if __name__ == "__main__":
    main()
