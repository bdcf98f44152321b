"""The part that every async box is made of: its configuration and its attachment to a sandbox."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Self

from sandmesh._calls.multiplexer import CallMux
from sandmesh.errors import WrongState
from sandmesh.sandbox.attachment import Attachment, BoxConfig, attach


class SandboxHandle:
    """A handle on a sandbox: it attaches when it is started, and detaches when it is closed."""

    def __init__(self, sandbox_type: str, config: BoxConfig) -> None:
        self._type = sandbox_type
        self._config = config
        self._attachment: Attachment | None = None
        self._closed = False

    @property
    def sandbox_id(self) -> str:
        """The sandbox's id.

        Raises:
            WrongState: The box was not started, so there is no sandbox yet.
        """
        if self._config.sandbox_id is not None:
            return self._config.sandbox_id
        attachment = self._attachment or self._attached()
        return attachment.record.sandbox_id

    @property
    def sandbox_type(self) -> str:
        """The sandbox's type; for a box that attaches by id, the sandbox's template once the box is open."""
        if self._config.sandbox_id is not None and self._attachment is not None:
            return self._attachment.record.spec.template
        return self._type

    @property
    def is_open(self) -> bool:
        """Whether it was started and not closed."""
        return self._attachment is not None

    async def start(self) -> Self:
        """Create the sandbox or attach to it; starting an open box changes nothing.

        Raises:
            WrongState: The box was closed.
            SandmeshError: The sandbox could not be provided; nothing is left behind.
        """
        if self._closed:
            raise WrongState("this box was closed: make a new one", {"state": "CLOSED"})
        if self._attachment is None:
            # Calls need it. Imported at the first one, it would hang the child of a fork in another thread meanwhile.
            import_module("sandmesh._tools.validation")
            self._attachment = await attach(self._config)
        return self

    async def close(self) -> None:
        """Release the sandbox if this box created it; closing twice changes nothing."""
        self._closed = True
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            await attachment.close(self._config.timeout)

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_exc: object) -> None:
        """Close."""
        await self.close()

    def _mux(self) -> CallMux:
        return self._attached().usable().mux

    def _attached(self) -> Attachment:
        attachment = self._attachment
        if attachment is None:
            state = "CLOSED" if self._closed else "NEW"
            detail = (
                "was closed: make a new one" if self._closed else "was not started: enter it by `with`, or start() it"
            )
            raise WrongState(f"this box {detail}", {"state": state})
        if attachment.pid != os.getpid():
            sandbox_id = attachment.record.sandbox_id
            message = f"this box was opened before a fork: attach from here by sandbox_id={sandbox_id!r} and base_url="
            raise WrongState(message, {"state": "FORKED", "sandbox_id": sandbox_id})
        return attachment
