"""The kernels of a door: each in its own sandbox, or with others in one that has a name."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandboxLost, SandmeshError
from sandmesh.inputs import Options
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.jupyter.kernel import NotebookKernel, Opened
from sandmeshd.facades.jupyter.plugin import JupyterSettings
from sandmeshd.facades.jupyter.specs import DEFAULT, kernel_specs

LABEL: Final = "jupyter"
"""Marks the sandboxes of this door; its value is the session's name, or the kernel's id."""

MOST_OF_OWNER: Final = 64
"""Kernels of one owner; it has sandboxes by its quota."""

SESSION, TEMPLATE = "KERNEL_SANDMESH_SESSION", "KERNEL_SANDMESH_TEMPLATE"
_OWN: Final = "KERNEL_"
"""How the variables begin that are about a kernel and not for its code."""
_LEASE_SECONDS: Final = 7 * 86_400.0
_CALL_SECONDS: Final = 86_400.0
_MOST_VARIABLES: Final = 64 << 10
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class NotebookRequest:
    """What a client asks for when it starts a kernel."""

    key: str
    owner: str
    name: str
    template: str
    session: str
    variables: Mapping[str, str]


def read_request(found: Mapping[str, object], key: str, owner: str, template: str) -> NotebookRequest:
    """Return the request of a body.

    Raises:
        RequestError: It does not fit.
    """
    name, variables = found.get("name") or DEFAULT, found.get("env") or dict[str, object]()
    if not isinstance(name, str) or not isinstance(variables, Mapping):
        raise RequestError(400, "name is a text, and env an object of texts")
    pairs = cast("Mapping[str, object]", variables)
    texts = {one: value for one, value in pairs.items() if isinstance(value, str)}
    if len(texts) != len(pairs) or sum(len(one) + len(value) for one, value in texts.items()) > _MOST_VARIABLES:
        raise RequestError(400, f"env is an object of texts, of at most {_MOST_VARIABLES} characters")
    own = {one: value for one, value in texts.items() if not one.startswith(_OWN)}
    session, wanted = texts.get(SESSION, ""), texts.get(TEMPLATE) or template
    if session and not _NAME.fullmatch(session):
        raise RequestError(400, f"{SESSION} is not a name: letters, digits and . _ -, at most 100")
    if session and own:
        raise RequestError(400, f"{', '.join(sorted(own))[:200]}: the sandbox of a session has its own variables")
    if name not in kernel_specs(wanted):
        known = ", ".join(kernel_specs(wanted))
        raise RequestError(
            404, f"there is no kernel {name[:100]!r} in sandboxes of {wanted[:100]!r}: there are {known}"
        )
    return NotebookRequest(key, owner, name, wanted, session, own)


class NotebookKernels:
    """The kernels in use."""

    def __init__(self, clients: MeshClients, settings: JupyterSettings) -> None:
        self._clients = clients
        self._idle_seconds = settings.idle_seconds
        self._kernels: dict[str, NotebookKernel] = {}
        self._requests: dict[str, NotebookRequest] = {}

    def of_owner(self, owner: str) -> list[NotebookKernel]:
        """Return the kernels of an owner."""
        return [kernel for kernel in self._kernels.values() if kernel.owner == owner]

    def get(self, owner: str, kernel_id: str) -> NotebookKernel:
        """Return a kernel.

        Raises:
            RequestError: The owner has none of that id.
        """
        found = self._kernels.get(kernel_id)
        if found is None or found.owner != owner:
            raise RequestError(404, f"Kernel does not exist: {kernel_id[:100]}")
        return found

    async def create(self, request: NotebookRequest) -> NotebookKernel:
        """Start a kernel.

        Raises:
            RequestError: The owner has too many.
            SandmeshError: No sandbox could be created for it.
        """
        if len(self.of_owner(request.owner)) >= MOST_OF_OWNER:
            raise RequestError(429, f"there are {MOST_OF_OWNER} kernels: shut down one of them")
        kernel_id = str(uuid.uuid4())
        spec = kernel_specs(request.template)[request.name]
        made = NotebookKernel(kernel_id, spec, request.owner, lambda: self._open(kernel_id, spec.language, request))
        # It counts from here on.
        self._kernels[kernel_id], self._requests[kernel_id] = made, request
        try:
            await made.start()
        except BaseException:
            del self._kernels[kernel_id], self._requests[kernel_id]
            raise
        return made

    async def delete(self, kernel: NotebookKernel) -> None:
        """End a kernel, and its sandbox where it has no other."""
        self._kernels.pop(kernel.id, None)
        request = self._requests.pop(kernel.id, None)
        box = kernel.box
        sandbox_id = "" if box is None else box.sandbox_id
        if request is None:
            return
        with suppress(NotFound, SandboxLost):
            if not request.session and sandbox_id:
                async with self._clients.client(request.key) as mesh:
                    await mesh.sandboxes.kill(sandbox_id)
            elif box is not None:
                await (await box.kernels.get(kernel.id)).delete()
        await kernel.close()

    async def close(self) -> None:
        """Close all; the sandboxes stay until they are idle for long."""
        kernels, self._kernels = self._kernels, {}
        for kernel in kernels.values():
            await kernel.close()

    async def _open(self, kernel_id: str, language: str, request: NotebookRequest) -> Opened:
        name = request.session or kernel_id
        options: Options = {"labels": {LABEL: name}, "ttl": _LEASE_SECONDS, "idle_timeout": self._idle_seconds}
        if request.variables:
            options["env"] = dict(request.variables)
        digest = hashlib.sha256(f"{request.template}/{name}".encode()).hexdigest()[:24]
        async with self._clients.client(request.key) as mesh:
            session = await mesh.sessions.connect(f"jupyter-{digest}", sandbox_type=request.template, **options)
        sandbox_id = session.sandboxes[request.template]
        box = await SandboxAsync(sandbox_id, _CALL_SECONDS, self._clients.address, bearer_token=request.key).start()
        try:
            return box, await box.kernels.create(language, kernel_id)
        except SandmeshError:
            await box.close()
            raise
