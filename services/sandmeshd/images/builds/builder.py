"""One build: the stages that its image needs, step by step."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandmesh.errors import InvalidArgument, SandmeshError, TemplateBuildFailed, TooLarge
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.folders import build_folder, cache_folder
from sandmeshd.images.builds.layer_file import LayerFile
from sandmeshd.images.builds.options import ImageBuildOptions, Report, Totals
from sandmeshd.images.builds.plans import Plan, plan_copy, plan_run
from sandmeshd.images.builds.runner import ImageStep, Runner, StepOutcome
from sandmeshd.images.builds.stages import Stage, read_stages
from sandmeshd.images.builds.state import State, check_known
from sandmeshd.images.dockerfile import ParsedInstruction, parse_dockerfile
from sandmeshd.images.extension import NewLayer
from sandmeshd.images.image import PulledImage
from sandmeshd.images.progress import PullProgress
from sandmeshd.images.pull import platform
from sandmeshd.images.reference import BUILT, PRIVATE, STEPS, parse_reference
from sandmeshd.images.store import ImageStore
from sandmeshd.runtime.full_disk import full_disk_explained

_BUILDER: Final = "1"
"""Changes whenever the result of the same step does."""
_TAIL: Final = 30
"""How many lines of a command that failed its error has."""
_SCRATCH: Final = "scratch"
_STEPS: Final = frozenset({"RUN", "COPY", "ADD"})


@dataclass
class _BuiltStage:
    """A stage as far as it is built."""

    image: PulledImage | None
    """Has the files; None where there is none yet. The configuration is the state's."""
    state: State


@dataclass
class DockerfileBuilder:
    """Builds one image."""

    store: ImageStore
    runner: Runner
    options: ImageBuildOptions
    report: Report
    totals: Totals = field(default_factory=Totals)

    async def build(self, name: str) -> PulledImage:
        """Build the image, and give it a name; without one it gets one that is made of its owner and what is in it.

        Raises:
            InvalidArgument: The Dockerfile is not valid, or has what is not supported; the message has the line.
            TemplateBuildFailed: A command failed; the message has the line, `facts["detail"]` the end of its output.
            PermissionDenied, RuntimeUnavailable, TooLarge, CapabilityMissing: As `ImageStore.pull` and `Runner.run`.
        """
        instructions = parse_dockerfile(self.options.dockerfile)
        await self.store.prepare()
        with full_disk_explained(self.store.directory):
            async with build_folder(self.store.directory) as folder, AsyncExitStack() as held:
                run = _Build(self, folder, held, instructions)
                made = await run.build_last()
                run.check_arguments()
                return await self.store.extend(name or self._own_name(made), made.image, made.state.config, None)

    def _own_name(self, made: _BuiltStage) -> str:
        """Return a name that only who has the same image can know."""
        facts = [self.options.owner, self.store.extension.diff_ids(made.image), made.state.config]
        return f"{BUILT}:{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


class _Build:
    """A build that runs."""

    def __init__(
        self, builder: DockerfileBuilder, folder: Path, held: AsyncExitStack, instructions: list[ParsedInstruction]
    ) -> None:
        self._builder = builder
        self._options = builder.options
        self._store = builder.store
        self._report = builder.report
        self._totals = builder.totals
        self._folder = folder
        self._held = held
        self._stages = read_stages(instructions)
        self._made: dict[int, _BuiltStage] = {}
        self._used: set[str] = set()
        self._globals = self._read_globals()

    def _read_globals(self) -> dict[str, str]:
        here = platform()
        known = {
            **{f"{side}PLATFORM": str(here) for side in ("BUILD", "TARGET")},
            **{f"{side}OS": here.os for side in ("BUILD", "TARGET")},
            **{f"{side}ARCH": here.architecture for side in ("BUILD", "TARGET")},
        }
        state = State(config={}, overrides=self._options.arguments, globals=known, arguments=dict(known))
        for one in self._stages.arguments:
            state.apply(one)
        self._used |= state.used
        return state.arguments

    async def build_last(self) -> _BuiltStage:
        """Build the stage that is the image, with those that it needs."""
        target = self._options.target
        stage = self._stages.find(target) if target else self._stages.stages[-1]
        if stage is None:
            known = ", ".join(one.name or str(one.number) for one in self._stages.stages)
            raise InvalidArgument(f"the Dockerfile has no stage {target!r}, but {known}", {"field": "target"})
        return await self._build(stage)

    def check_arguments(self) -> None:
        """Warn of each build argument that no ARG of the stages built declares."""
        for name in sorted(set(self._options.arguments) - self._used):
            self._report.line(f"warning: no ARG of these stages names {name}: --build-arg {name} has no effect")

    async def _build(self, stage: Stage) -> _BuiltStage:
        """Build a stage, once."""
        if stage.number in self._made:
            return self._made[stage.number]
        made = await self._start(stage)
        for one in stage.instructions:
            if one.name in _STEPS:
                await self._step(stage, one, made)
            elif not made.state.apply(one):
                raise check_known(one)
        if made.state.directories:
            await self._make_directories(stage, made)
        self._used |= made.state.used
        self._made[stage.number] = made
        return made

    async def _start(self, stage: Stage) -> _BuiltStage:
        one = stage.start
        globals_only = State(config={}, arguments=dict(self._globals))
        for flag in one.flags:
            name, _, value = flag.partition("=")
            wanted = globals_only.expand(one, value)
            if name != "--platform" or wanted != str(platform()):
                raise one.refuse(f"{flag} is not supported: this machine builds for {platform()}")
        name = globals_only.expand(one, stage.base)
        if not name:
            raise one.refuse("the name of the base is empty: set its ARG")
        other = self._stages.find(name, stage.number) if not name.isdecimal() else None
        if other is not None:
            made = await self._build(other)
            config = json.loads(json.dumps(made.state.config))
            return _BuiltStage(made.image, self._state(config))
        if name == _SCRATCH:
            return _BuiltStage(None, self._state(self._store.extension.read_config(None)))
        image = await self._pull(one, name)
        config = self._store.extension.read_config(image)
        state = self._state(config)
        if state.process.get("OnBuild"):
            raise one.refuse("the image has triggers (ONBUILD), which are not supported: name the one that it is of")
        return _BuiltStage(image, state)

    def _state(self, config: dict[str, Any]) -> State:
        return State(config=config, overrides=self._options.arguments, globals=self._globals)

    async def _pull(self, one: ParsedInstruction, name: str) -> PulledImage:
        """Return an image, which stays as long as the build runs."""

        def note(progress: PullProgress) -> None:
            if progress.message not in said:
                said.add(progress.message)
                self._report.line(f"{name}: {progress.message}")

        said: set[str] = set()
        try:
            own = self._private_name(name)
            check_pull = self._options.check_pull
            if self._options.pull:
                check_pull(name)
            found = None if self._options.pull else self._store.find_current(name, check_pull, own)
            if found is None:
                found = await self._store.pull(name, own, progress=note)
            return self._hold(found)
        except SandmeshError as error:
            raise type(error)(f"line {one.line} of the Dockerfile: {error.message}", error.facts) from None

    def _private_name(self, name: str) -> str:
        """Return the name of a base here: one that others do not know where it takes credentials of the owner's."""
        if not self._options.private:
            return name
        facts = f"{self._options.owner}\0{parse_reference(name)}"
        return f"{PRIVATE}:{hashlib.sha256(facts.encode()).hexdigest()}"

    def _hold(self, image: PulledImage) -> PulledImage:
        self._held.callback(os.close, self._store.hold(image))
        return image

    async def find(self, one: ParsedInstruction, name: str) -> PulledImage | Context:
        """Return what a name leads to: see `Others`."""
        before = next(stage.number for stage in self._stages.stages if one in (*stage.instructions, stage.start))
        stage = self._stages.find(name, before)
        if stage is not None:
            made = await self._build(stage)
            if made.image is None:
                raise one.refuse(f"the stage {name} has no file")
            return made.image
        if name in self._options.contexts:
            return self._options.contexts[name]
        if any(name.lower() == stage.name for stage in self._stages.stages):
            raise one.refuse(f"the stage {name} comes later")
        return await self._pull(one, name)

    async def _step(self, stage: Stage, one: ParsedInstruction, made: _BuiltStage) -> None:
        self._totals.steps += 1
        folder = self._folder / str(self._totals.steps)
        folder.mkdir()
        planned = plan_run if one.name == "RUN" else plan_copy
        plan = await planned(one, made.state, self._options, self, folder / "files")
        shown = " ".join((one.name, *one.flags, one.text.partition("\n")[0]))
        await self._carry_out(plan, made, folder, (stage, one, shown))

    async def _make_directories(self, stage: Stage, made: _BuiltStage) -> None:
        """Make what WORKDIR named, where no step comes after it."""
        self._totals.steps += 1
        folder = self._folder / f"{stage.number}-directories"
        folder.mkdir()
        one = next(each for each in reversed(stage.instructions) if each.name == "WORKDIR")
        await self._carry_out(Plan(identity={}), made, folder, (stage, one, f"WORKDIR {one.text}"))

    async def _carry_out(
        self, plan: Plan, made: _BuiltStage, folder: Path, what: tuple[Stage, ParsedInstruction, str]
    ) -> None:
        stage, one, shown = what
        place = f"{stage.name or stage.number}:{one.line}"
        key = self._key(plan, made)
        found = self._store.find(f"{STEPS}:{key}") if self._options.cached else None
        self._report.line(f"[{place}] {'(cached) ' if found else ''}{shown}"[:200])
        if found is not None:
            self._totals.cached += 1
        else:
            layer = await self._run(plan, made, folder, one)
            config = self._store.extension.read_config(made.image)
            found = await self._store.extend(f"{STEPS}:{key}", made.image, config, layer)
            self._totals.written += layer.size if layer else 0
        made.image = self._hold(found)
        made.state.directories.clear()

    def _key(self, plan: Plan, made: _BuiltStage) -> str:
        base = self._store.extension.diff_ids(made.image)
        facts = [_BUILDER, base, made.state.directories, plan.identity]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    async def _run(self, plan: Plan, made: _BuiltStage, folder: Path, one: ParsedInstruction) -> NewLayer | None:
        """Carry out a step; return what it changed."""
        tail = _Tail(self._report)
        place = folder / "step"
        place.mkdir(mode=0o711)
        async with AsyncExitStack() as stack:
            caches = [
                await stack.enter_async_context(cache_folder(self._store.directory, name, exclusive=exclusive))
                for name, exclusive in plan.caches
            ]
            layer = stack.enter_context(LayerFile(folder / "layer", self._store.settings.image_bytes))
            step = _step_of(plan, made, tuple(caches), self._options)
            try:
                outcome = await self._builder.runner.run(step, place, layer, tail.add)
            except InvalidArgument as error:
                raise one.refuse(error.message) from None
            except TooLarge as error:
                raise TooLarge(one.refuse(error.message).message, error.facts) from None
            tail.end()
            if outcome.code:
                raise _failed(one, outcome, tail)
            return layer.finish()


def _step_of(plan: Plan, made: _BuiltStage, caches: tuple[Path, ...], options: ImageBuildOptions) -> ImageStep:
    return ImageStep(
        layers=made.image.layers if made.image else (),
        directories=tuple(made.state.directories),
        copy=plan.copy,
        command=plan.command,
        images=tuple(image.layers for image in plan.images),
        caches=caches,
        network=plan.network,
        only_public=options.only_public,
        input=plan.input,
    )


def _failed(one: ParsedInstruction, outcome: StepOutcome, tail: _Tail) -> TemplateBuildFailed:
    detail = "\n".join([*tail.lines, *outcome.refused])
    shown = " ".join((one.name, *one.flags, one.text.partition("\n")[0]))[:120]
    message = f"line {one.line} of the Dockerfile, {shown}: the command ended with code {outcome.code}"
    facts: Mapping[str, str] = {"line": str(one.line), "detail": detail or "it wrote nothing"}
    return TemplateBuildFailed(message, dict(facts))


class _Tail:
    """Cuts what a command writes into lines, and keeps the last."""

    LONGEST: Final = 4096

    def __init__(self, report: Report) -> None:
        self._report = report
        self._rest = b""
        self.lines: list[str] = []

    def add(self, data: bytes) -> None:
        """Add output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line)
        if len(self._rest) > self.LONGEST:
            self.end()

    def end(self) -> None:
        """Add what has no line's end."""
        if self._rest:
            self._add(self._rest)
        self._rest = b""

    def _add(self, line: bytes) -> None:
        # Of a progress bar the last state is enough.
        text = line[-self.LONGEST :].decode(errors="replace").rstrip("\r").rpartition("\r")[2]
        shown = "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in text)
        self.lines = [*self.lines[1 - _TAIL :], shown]
        self._report.output(shown)
