"""Connections to the store that send a command at once."""

from __future__ import annotations

from typing import Any


def prompt(kind: Any) -> Any:
    """Give a kind of redis-py's connections whose sends wait for nothing where nothing has to be waited for.

    To give it a time limit redis-py makes a task of every send, which begins a turn of the loop later. What is written
    to a connection that holds nothing back is on its way already.
    """

    class Prompt(kind):  # type: ignore[misc]  # the kind depends on the store's address
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            if self.is_connected and isinstance(command, list) and not self._writer.transport.get_write_buffer_size():
                self._writer.writelines(command)
            else:
                plain: Any = super()
                await plain.send_packed_command(command, check_health)

    return Prompt
