"""What kernels of other languages need of the program that carries them."""

from __future__ import annotations

import threading
from pathlib import Path

from sandmeshd.agent.userland.languages.jupyter import name_sockets


def test_the_sockets_of_a_kernel_that_names_them_as_for_tcp_are_found_by_jupyters_names(tmp_path: Path) -> None:
    place = tmp_path / "kernel-ipc"
    naming = threading.Thread(target=name_sockets, args=(str(place), [1, 2, 3]))
    naming.start()
    Path(f"{place}-1").write_text("its own name")
    for port in (2, 3):
        Path(f"{place}:{port}").write_text(f"socket {port}")
    naming.join(30)
    assert not naming.is_alive()
    assert [Path(f"{place}-{port}").read_text() for port in (1, 2, 3)] == ["its own name", "socket 2", "socket 3"]
