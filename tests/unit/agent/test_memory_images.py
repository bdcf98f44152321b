"""The memory of a process, from which another one continues."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandmeshd.agent.userland.core import syscall_table
from sandmeshd.agent.userland.python.memory import restore as memory_restore

pytestmark = pytest.mark.skipif(not syscall_table.SUPPORTED, reason="this machine's processor has no instructions yet")

_SAVE = """
    import os, sys
    from sandmeshd.agent.userland.python.memory import image as memory_image
    image, place = int(sys.argv[1]), sys.argv[2]
    values = {number: str(number) for number in range(50_000)}
    array = bytearray(b"a") * 50_000_000
    lines = open(place)
    lines.readline()
    reader, writer = os.pipe()
    saved = memory_image.save(image, 1 << 30)
    if isinstance(saved, memory_image.Restored):
        import decimal, subprocess, threading
        said = []
        thread = threading.Thread(target=said.append, args=(1,))
        thread.start()
        thread.join()
        more = [str(number) for number in range(100_000)]
        child = subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip()
        array[0] = ord("b")
        try:
            at_end = os.read(reader, 1)
        except OSError as error:
            at_end = error
        print(saved.message["told"], values[777], array[:2], len(more), lines.readline().strip(), said, child, at_end)
        print(os.getpid() != int(os.environ["SAVED_BY"]) and saved.message["told"])
    else:
        print(saved.size > 50_000_000, values[777])
"""
_RESTORE = """
    import os, sys
    from sandmeshd.agent.userland.python.memory import restore as memory_restore
    memory_restore.MemoryRestore(int(sys.argv[1])).run([os.dup(1)], {"told": "hello"})
"""


def _run(program: str, image: int, place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SAVED_BY": "1", "PYTHONPATH": ":".join(sys.path)}
    argv = [sys.executable, "-c", textwrap.dedent(program), str(image), str(place)]
    return subprocess.run(
        argv, capture_output=True, text=True, pass_fds=[image], env=environment, timeout=60, check=False
    )


def test_other_processes_continue_from_saved_memory_each_with_its_own_copy(tmp_path: Path) -> None:
    place = tmp_path / "lines.txt"
    place.write_text("one\ntwo\nthree\n")
    image = os.memfd_create("image")
    try:
        saved = _run(_SAVE, image, place)
        assert saved.stdout == "True 777\n", saved.stderr
        # Each has another address layout than the one that was saved.
        for _ in range(2):
            restored = _run(_RESTORE, image, place)
            expected = "hello 777 bytearray(b'ba') 100000 two [1] child b''\nhello\n"
            assert (restored.returncode, restored.stdout) == (0, expected), restored.stderr
    finally:
        os.close(image)


@pytest.mark.parametrize("data", [b"", b"1234567", b"\xff" * 64, b"{}" + bytes(6) + b"\x01" + bytes(7)])
def test_what_is_not_an_image_is_refused(data: bytes) -> None:
    image = os.memfd_create("image")
    try:
        os.write(image, data)
        with pytest.raises((ValueError, KeyError)):
            memory_restore.MemoryRestore(image)
    finally:
        os.close(image)
