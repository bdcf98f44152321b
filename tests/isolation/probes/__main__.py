"""Makes all attempts and prints what they could do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .attempts import attempt
from .every import PROBES


def main() -> None:
    """Run all attempts and print what they could do."""
    facts = json.loads(Path(sys.argv[1]).read_text())
    # The listing's own descriptor is gone when the others are looked at.
    facts["descriptors"] = [path.name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    sys.stdout.write(json.dumps({name: attempt(run, facts) for name, run in PROBES.items()}))


if __name__ == "__main__":
    main()
