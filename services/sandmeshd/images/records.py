"""What names lead to, and who uses it: a record for each reference, and a file for each manifest that users lock."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandmeshd.images.file_locks import try_lock


class ImageRecords:
    """The records below a store's directory."""

    def __init__(self, directory: Path) -> None:
        self._references = directory / "references"
        self._uses = directory / "uses"

    def make(self) -> None:
        """Make the directories."""
        for path in (self._references, self._uses):
            path.mkdir(exist_ok=True)

    def find(self, reference: str) -> str | None:
        """Return the digest of the manifest that a reference led to."""
        return self._read(self._path(reference)).get("digest")

    def list_all(self) -> Iterator[tuple[str, str]]:
        """Yield every reference with the digest of its manifest."""
        for path in sorted(self._references.glob("*.json")):
            record = self._read(path)
            if record:
                yield record["reference"], record["digest"]

    def version(self, reference: str) -> str:
        """Return the version of the file or directory that a reference led to; empty where it named none."""
        return self._read(self._path(reference)).get("version", "")

    def write(self, reference: str, digest: str, correction: str, version: str = "") -> None:
        """Record what a reference leads to, its use, and the layer on top that the image itself lacks, if any."""
        path = self._path(reference)
        fresh = path.with_suffix(f".{secrets.token_hex(4)}")
        fresh.write_text(json.dumps({"reference": reference, "digest": digest, "version": version}))
        fresh.rename(path)
        (self._uses / digest.removeprefix("sha256:")).write_text(correction)

    def remove(self, reference: str) -> None:
        """Remove a reference."""
        self._path(reference).unlink(missing_ok=True)

    def lock(self, digest: str, *, shared: bool) -> int | None:
        """Return a descriptor that locks a manifest, for its use or its removal; None where another has it."""
        descriptor = try_lock(self._uses / digest.removeprefix("sha256:"), shared=shared)
        if descriptor is not None and shared:
            os.utime(descriptor)
        return descriptor

    def list_used(self) -> list[str]:
        """Return the digests of all manifests that were ever used and not forgotten."""
        return [f"sha256:{path.name}" for path in self._uses.iterdir()]

    def correction(self, digest: str) -> str:
        """Return the digest of the layer that a manifest's image has beside its own; empty where it has none."""
        with suppress(FileNotFoundError):
            return (self._uses / digest.removeprefix("sha256:")).read_text()
        return ""

    def used(self, digest: str) -> float:
        """Return when a manifest was last used, in seconds since the epoch."""
        with suppress(FileNotFoundError):
            return (self._uses / digest.removeprefix("sha256:")).stat().st_mtime
        return 0.0

    def forget(self, digest: str) -> None:
        """Remove the file of a manifest that is not there any more."""
        (self._uses / digest.removeprefix("sha256:")).unlink(missing_ok=True)

    def _path(self, reference: str) -> Path:
        return self._references / f"{hashlib.sha256(reference.encode()).hexdigest()}.json"

    def _read(self, path: Path) -> dict[str, str]:
        try:
            record: dict[str, str] = json.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return record
