"""The program that unpacks one layer, a process for each: `main` with the arguments in JSON.

It confines itself to the new directory (chroot), so that no name or link of a layer leads out of it. As an
ordinary user it is root of a user namespace whose map its parent writes, so that files have the owners of the layer.
It needs the standard library, and Python's zstd.

It writes lines of JSON: `{"waits": "map"}` until a line comes to its input, `{"read": BYTES}` meanwhile, and at the end
`{"done": {...}}` or `{"failed": KIND, "message": TEXT}`. It ends when its input does.
"""

from __future__ import annotations

import ctypes
import errno
import gzip
import json
import lzma
import os
import resource
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sandmeshd.images.layers.tar_entries import ImageRefused
from sandmeshd.images.layers.unpacker import Bounds, TarStream, Unpacker, decompressed, report

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError
else:
    from backports.zstd import ZstdError

_CLONE_NEWUSER: Final = 0x10000000
_MOST_IMPLIED: Final = 4096
_MEMORY: Final = 2 << 30


def _enter(target: str, *, namespace: bool) -> None:
    """Become root of a user namespace if so requested, and make the target the root of this process."""
    if namespace:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWUSER):
            raise ImageRefused("failed", f"no user namespace: {os.strerror(ctypes.get_errno())}")
        report(waits="map")
        if not os.read(0, 1):
            os._exit(1)
        os.setresgid(0, 0, 0)
        os.setgroups([])
        os.setresuid(0, 0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chroot(target)
    os.chdir("/")
    os.umask(0)
    os.chown("/", 0, 0)
    Path("/").chmod(0o755)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _run(arguments: Mapping[str, Any]) -> dict[str, object]:
    bounds = Bounds(int(arguments["bytes"]), int(arguments["files"]))
    with Path(arguments["blob"]).open("rb") as file:
        stream = TarStream(decompressed(file), bounds)
        _enter(arguments["target"], namespace=bool(arguments["namespace"]))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        unpacker = Unpacker(bounds)
        unpacker.unpack(stream)
        stream.drain()
    return {
        "diff_id": f"sha256:{stream.digest.hexdigest()}",
        "size": unpacker.size,
        "files": unpacker.files,
        "left_out": unpacker.left_out,
        "implied": [os.fsdecode(path) for path in sorted(unpacker.implied)[:_MOST_IMPLIED]],
    }


def _outcomes(arguments: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    try:
        yield {"done": _run(arguments)}
    except ImageRefused as refusal:
        yield {"failed": refusal.kind, "message": str(refusal)}
    except (EOFError, zlib.error, lzma.LZMAError, ZstdError, gzip.BadGzipFile) as error:
        yield {"failed": "bad", "message": f"it cannot be decompressed: {error}"}
    except OSError as error:
        kind = "full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "failed"
        kind = "bad" if error.errno in {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EINVAL} else kind
        yield {"failed": kind, "message": str(error)}
    except MemoryError:
        yield {"failed": "large", "message": "it takes more memory than 2 GiB to decompress"}


def main() -> None:
    """Unpack what the first argument says, and write the outcome."""
    for outcome in _outcomes(json.loads(sys.argv[1])):
        report(**outcome)


if __name__ == "__main__":
    main()
