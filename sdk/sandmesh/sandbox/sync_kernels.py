"""Kernels for programs without an event loop: each method is the async twin's, one line a method."""

from __future__ import annotations

from sandmesh._client.sync import Facade, blocking, blocking_iterator, blocking_twin
from sandmesh.sandbox.kernels import KernelAsync, KernelsAsync


class Kernel(Facade):
    """A kernel of a sandbox: its cells run one after another, those of several kernels side by side."""

    twin: KernelAsync

    @property
    def id(self) -> str:
        """Its id in the sandbox."""
        return self.twin.id

    @property
    def language(self) -> str:
        """What its code is."""
        return self.twin.language

    run = blocking(KernelAsync.run)
    stream = blocking_iterator(KernelAsync.stream)
    interrupt = blocking(KernelAsync.interrupt)
    restart = blocking(KernelAsync.restart)
    delete = blocking(KernelAsync.delete)


class Kernels(Facade):
    """The kernels of a sandbox: `box.kernels`."""

    def __init__(self, twin: KernelsAsync) -> None:
        self.twin: KernelsAsync = twin

    create = blocking_twin(Kernel, KernelsAsync.create)
    get = blocking_twin(Kernel, KernelsAsync.get)
    list = blocking(KernelsAsync.list)
