"""The calls on files, by name."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.files import changes, entries
from sandmeshd.agent.files.arguments import Arguments, read_arguments, write_line
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.content import FileReader, FileWriter
from sandmeshd.agent.files.failures import CallStopped, failure_outcome, stopped_outcome
from sandmeshd.agent.files.requests import (
    ApplyChanges,
    BeginBranch,
    DropState,
    HoldState,
    List,
    ListChanges,
    ListStates,
    Mkdir,
    Move,
    Pack,
    PackChanges,
    Read,
    Remove,
    Restore,
    ReturnToState,
    Save,
    Stat,
    Unpack,
    Watch,
    Write,
)
from sandmeshd.agent.files.streams import InputReader, Threads, pump, put, unless_stopped
from sandmeshd.agent.files.trees import archives, image_changes, snapshots
from sandmeshd.agent.files.trees.branches import Branch
from sandmeshd.agent.files.trees.held_states import HeldStates
from sandmeshd.agent.files.watch import PathWatcher

_WORKSPACE = "/workspace"
"""The sandbox's own directory in images, whose working directory may be another."""
A = TypeVar("A", bound=Arguments)


class FileService:
    """Runs calls on files of a workspace; the largest file that may be written is in bytes, 0 for any.

    `home` is the path of what is saved and restored with it; empty where there is none. Where the root is an image,
    what was changed of it, in the directory `changes`, is saved and restored instead.
    """

    def __init__(self, workspace: Workspace, most: int, home: str = "", changes: str = "") -> None:
        self._changes = changes
        self._workspace = workspace
        self._home = home
        self._most = most
        self._threads = Threads()
        self._branch = Branch(workspace, image_changes.with_rights if changes else nullcontext)
        self._states = HeldStates(workspace, self._branch.still)

    def services(self) -> Mapping[str, Service]:
        """Return the handler of each service."""
        made = [
            self._quick(Stat, entries.look_up),
            self._quick(Mkdir, changes.make_directory),
            self._quick(Move, changes.move),
            self._quick(Remove, changes.remove),
            _service(List, self._list),
            _service(Read, self._read),
            _service(Write, self._write),
            _service(Pack, self._pack),
            _service(Unpack, self._unpack),
            _service(Save, self._save),
            _service(Restore, self._restore),
            _service(Watch, self._watch),
            _service(BeginBranch, self._in_thread(self._branch.begin)),
            _service(HoldState, self._in_thread(self._states.hold)),
            _service(ListStates, self._in_thread(self._states.listed)),
            _service(ReturnToState, self._in_thread(self._states.return_to)),
            _service(DropState, self._in_thread(self._states.drop)),
            _service(ListChanges, self._list_changes),
            _service(PackChanges, self._pack_changes),
            _service(ApplyChanges, self._apply_changes),
        ]
        return dict(made)

    def _quick(self, cls: type[A], function: Callable[[Workspace, A], Any]) -> tuple[str, Service]:
        async def run(request: A, call: RunningCall) -> Outcome:
            call.started()
            return _outcome(await self._threads.run(function, self._workspace, request))

        return _service(cls, run)

    async def _list(self, request: List, call: RunningCall) -> Outcome:
        call.started()
        await pump(call, self._threads, entries.listing(self._workspace, request))
        return Outcome()

    async def _read(self, request: Read, call: RunningCall) -> Outcome:
        call.started()
        reading = FileReader(self._workspace, request)
        try:
            # Metadata first, so that an interrupted reader can resume with the same file.
            call.output(pb.STREAM_STDERR, write_line(await self._threads.run(reading.open)))
            await pump(call, self._threads, reading.chunks())
        finally:
            await self._threads.run(reading.close)
        return Outcome()

    async def _write(self, request: Write, call: RunningCall) -> Outcome:
        input_reader = InputReader(call)
        input_reader.open_queue()
        call.started()
        writing = FileWriter(self._workspace, request, self._most)
        return _outcome(await input_reader.feed(self._threads, writing.take))

    async def _pack(self, request: Pack, call: RunningCall) -> Outcome:
        call.started()
        await pump(call, self._threads, archives.packed(self._workspace, request))
        return Outcome()

    async def _unpack(self, request: Unpack, call: RunningCall) -> Outcome:
        return await self._feed_input(call, partial(archives.unpacked, self._workspace, request))

    async def _feed_input(
        self, call: RunningCall, take: Callable[[int, InputReader], Mapping[str, Any] | None]
    ) -> Outcome:
        input_reader = InputReader(call)
        reader = input_reader.open_pipe()
        call.started()
        try:
            return _outcome(await input_reader.feed(self._threads, partial(take, reader)))
        finally:
            os.close(reader)

    async def _save(self, request: Save, call: RunningCall) -> Outcome:
        call.started()
        if self._changes:
            pieces = image_changes.saved(self._changes, _WORKSPACE, lambda: call.followed)
        else:
            pieces = snapshots.saved(self._workspace, self._home, lambda: call.followed)
        await pump(call, self._threads, pieces)
        return Outcome()

    async def _restore(self, request: Restore, call: RunningCall) -> Outcome:
        if self._changes:
            return await self._feed_input(call, partial(image_changes.restored, _WORKSPACE))
        return await self._feed_input(call, partial(snapshots.restored, self._workspace, self._home))

    def _in_thread(self, function: Callable[[A], Mapping[str, Any]]) -> Callable[[A, RunningCall], Awaitable[Outcome]]:
        async def run(request: A, call: RunningCall) -> Outcome:
            call.started()
            return _outcome(await self._threads.run(function, request))

        return run

    async def _list_changes(self, request: ListChanges, call: RunningCall) -> Outcome:
        call.started()
        await pump(call, self._threads, self._branch.listed(request))
        return Outcome()

    async def _pack_changes(self, _request: PackChanges, call: RunningCall) -> Outcome:
        call.started()
        await pump(call, self._threads, self._branch.pack(lambda: call.followed))
        return Outcome()

    async def _apply_changes(self, request: ApplyChanges, call: RunningCall) -> Outcome:
        return await self._feed_input(call, partial(self._branch.apply, request))

    async def _watch(self, request: Watch, call: RunningCall) -> Outcome:
        watcher = await self._threads.run(PathWatcher, self._workspace, request)
        call.started()
        try:
            while not watcher.gone:
                for change in await unless_stopped(call, watcher.changes()):
                    await put(call, write_line(change))
        finally:
            watcher.close()
        return Outcome()


def _outcome(facts: Mapping[str, Any] | None) -> Outcome:
    return Outcome(structured=json.dumps(facts).encode() if facts else b"")


def _service(cls: type[A], run: Callable[[A, RunningCall], Awaitable[Outcome]]) -> tuple[str, Service]:
    """Return a service's name, and a handler that parses its arguments and turns failures into results."""

    async def guarded(request: Any, call: RunningCall) -> Outcome:
        path = request.source if hasattr(request, "source") else request.path
        try:
            return await run(request, call)
        except (OSError, ToolFailure) as error:
            return failure_outcome(error, path, call.stop_reason or pb.END_REASON_EXITED)
        except CallStopped:
            return stopped_outcome(path, call.stop_reason or pb.END_REASON_CANCELLED)

    return cls.tool, Service(lambda data: read_arguments(cls, data), guarded)
