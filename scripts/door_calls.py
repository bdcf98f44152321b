"""Runs programs of a client's with its own Python, and prints as JSON what each of its public methods did.

`python scripts/door_calls.py e2b PROGRAM...`: `python -m tests.mesh.doors.door_pages` starts it, with what programs
need in the environment. A method is `answered` where any call of it returned, else `raised`, else `not called`.
"""

from __future__ import annotations

import dis
import importlib
import inspect
import json
import runpy
import sys
import threading
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final, cast

CLIENTS: dict[str, dict[str, str]] = {
    "e2b": {
        "Sandbox": "e2b.Sandbox",
        "sandbox.files": "e2b.sandbox_sync.filesystem.filesystem.Filesystem",
        "sandbox.commands": "e2b.sandbox_sync.commands.command.Commands",
        "CommandHandle": "e2b.sandbox_sync.commands.command_handle.CommandHandle",
        "sandbox.pty": "e2b.sandbox_sync.commands.pty.Pty",
        "sandbox.git": "e2b.sandbox_sync.git.Git",
        "Template": "e2b.Template",
        "Volume": "e2b.Volume",
        "Secret": "e2b.Secret",
        "of the code interpreter": "e2b_code_interpreter.Sandbox",
    },
    "agentscope": {
        "BaseSandbox": "agentscope_runtime.sandbox.BaseSandbox",
        "FilesystemSandbox": "agentscope_runtime.sandbox.FilesystemSandbox",
        "TrainingSandbox": "agentscope_runtime.sandbox.TrainingSandbox",
        "SandboxService": "agentscope_runtime.engine.services.sandbox.SandboxService",
        "SandboxManager": "agentscope_runtime.sandbox.manager.SandboxManager",
    },
    "swerex": {"RemoteRuntime": "swerex.runtime.remote.RemoteRuntime"},
    "sandboxfusion": {"sandbox_fusion": "sandbox_fusion"},
}
"""Whose public methods are listed, by how the page calls each."""


class Calls:
    """What methods did, by the code of their functions."""

    def __init__(self, owners: dict[str, str]) -> None:
        self.did: dict[tuple[str, str], str] = {}
        self._owners = {shown: _load(path) for shown, path in owners.items()}
        self._of_code: dict[CodeType, set[tuple[str, str]]] = {}
        for shown, owner in self._owners.items():
            for name, functions in _public(owner):
                self.did[shown, name] = "not called"
                for one in functions:
                    self._of_code.setdefault(one.__code__, set()).add((shown, name))

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        """Note a call: see sys.settrace."""
        del event, argument
        places = self._of_code.get(frame.f_code)
        return None if places is None else self._local(self._called(places, frame))

    def _called(self, places: set[tuple[str, str]], frame: FrameType) -> list[tuple[str, str]]:
        """Return which methods a call is of, where several have one code: by whose it is, and what a wrapper wraps."""
        code, values = frame.f_code, frame.f_locals
        wrapped = {getattr(values.get(name), "__name__", "") for name in code.co_freevars}
        names = wrapped & {name for _, name in places} or {name for _, name in places}
        own = values.get(code.co_varnames[0]) if code.co_argcount else None
        of_own = {shown for shown, one in self._owners.items() if isinstance(one, type) and isinstance(own, one)}
        owners = of_own or {shown for shown, _ in places}
        return [place for place in places if place[0] in owners and place[1] in names]

    def _local(self, places: list[tuple[str, str]]) -> Any:
        failing = False

        def note(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal failing
            if event == "return":
                did = _how_it_ended(frame, failing)
                if did == "answered" and _is_failure(argument):
                    did = "raised"
                for place in places:
                    if did == "answered" or (did and self.did[place] != "answered"):
                        self.did[place] = did
            # What is awaited ends by an exception, too.
            failing = event == "exception" and not issubclass(argument[0], StopIteration)
            return note

        return note


def _how_it_ended(frame: FrameType, failing: bool) -> str:
    """Return what a call did, empty while it only waits; an exception leaves a function by another instruction."""
    last = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if not last.startswith(("YIELD", "SEND")):
        return "answered" if last.startswith("RETURN") else "raised"
    if failing:
        return "raised"
    return "" if frame.f_code.co_flags & inspect.CO_COROUTINE else "answered"


def _is_failure(result: object) -> bool:
    """Return whether a result is a text about a failure: AgentScope's client returns one in place of a value."""
    return isinstance(result, str) and result.startswith("Error: HTTP")


def _load(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _public(owner: Any) -> list[tuple[str, list[FunctionType]]]:
    """Return the public methods of a class, or functions of a module, with the functions behind each."""
    if isinstance(owner, type):
        package = owner.__module__.partition(".")[0]
        classes = [base for base in owner.__mro__ if base.__module__.partition(".")[0] == package]
        found = {name: value for one in reversed(classes) for name, value in vars(one).items()}
    else:
        found = {name: getattr(owner, name) for name in dir(owner)}
        found = {name: one for name, one in found.items() if isinstance(one, FunctionType)}
    listed = [(name, _functions(value, owner)) for name, value in sorted(found.items()) if not name.startswith("_")]
    # What only writes down a recipe asks a mesh for nothing.
    return [(name, functions) for name, functions in listed if functions and not name.startswith("from_")]


_WRAPPERS: Final[tuple[Any, ...]] = (staticmethod, classmethod)


def _functions(value: Any, owner: Any) -> list[FunctionType]:
    if isinstance(value, FunctionType):
        inner = getattr(value, "__wrapped__", None)
        return [value, *(_functions(inner, owner) if inner is not None else [])]
    if isinstance(value, _WRAPPERS):
        return _functions(value.__func__, owner)
    if isinstance(value, type | property | str | int | float | None.__class__):
        return []
    try:
        parts = [*cast("dict[str, object]", vars(value)).values()]
    except TypeError:
        return []
    # A method may name the one that a call by its class is.
    parts += [getattr(owner, part, None) for part in parts if isinstance(part, str) and part.startswith("_")]
    wrapped = [part for part in parts if isinstance(part, (FunctionType, MethodType, *_WRAPPERS))]
    return [function for part in wrapped for function in _functions(getattr(part, "__func__", part), owner)]


def main() -> None:
    """Run the programs, and print what was found."""
    client, *programs = sys.argv[1:]
    calls = Calls(CLIENTS[client])
    said = sys.stdout
    sys.stdout = sys.stderr
    for program in programs:
        threading.settrace(calls.trace)
        sys.settrace(calls.trace)
        try:
            runpy.run_path(program, run_name="__main__")
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type,unused-ignore]  # as its documentation has it
    json.dump([[*place, did] for place, did in calls.did.items()], said)


if __name__ == "__main__":
    main()
