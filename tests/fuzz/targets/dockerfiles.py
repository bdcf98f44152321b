"""Dockerfiles, with all that their instructions set, and `.dockerignore`."""

from __future__ import annotations

from random import Random
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmesh.shared.files.dockerignore import DockerIgnore
from sandmeshd.images.builds.mounts import read_mount
from sandmeshd.images.builds.stages import read_stages
from sandmeshd.images.builds.state import State
from sandmeshd.images.dockerfile import parse_dockerfile
from tests.fuzz.mutation import mutated, text
from tests.fuzz.target import Fault, Target

from .wire import simple

_NAMES: Final = (
    *("FROM", "RUN", "COPY", "ADD", "ENV", "ARG", "LABEL", "USER", "WORKDIR", "SHELL", "EXPOSE", "CMD", "from"),
    *("ENTRYPOINT", "VOLUME", "STOPSIGNAL", "MAINTAINER", "# escape=`", "#", "# escape=\\", "", "ONBUILD"),
)
_WORDS: Final = (
    *("a", "a=b", 'A="b c"', "'x", "$A", "${A}", "${A:-${B}}", "${A:?x}", "${", "\\", "\\\n", "`\n", "<<EOF"),
    *('<<-"E"', "\nEOF\n", "--mount=type=cache,target=/c", "--mount=type=bind", '--mount=a,"b', "--from=x"),
    *('["a", "b"]', "[", "AS", "80/tcp", "\t", "\0"),
)
_PATTERNS: Final = ("*", "**", "/", "a", "!", "[a-", "]", "[]", "\\", "?", "#", "..", "a/b", "\n", " ")


def _make_dockerfile(random: Random) -> bytes:
    lines: list[str] = []
    for _ in range(random.randint(1, 8)):
        words = [random.choice((*_WORDS, text(random)[:40])) for _ in range(random.randint(0, 5))]
        lines.append(" ".join((random.choice(_NAMES), *words)))
    data = "\n".join(("FROM a", *lines)).encode(errors="replace")
    return mutated(random, data) if random.random() < 0.3 else data


def _feed_dockerfile(data: bytes) -> str:
    """Read a Dockerfile, and carry out what changes no file."""
    try:
        stages = read_stages(parse_dockerfile(data))
        for stage in stages.stages:
            state = State(config={})
            for one in stage.instructions:
                if not state.apply(one) and one.name == "RUN":
                    for flag in one.flags:
                        read_mount(one, state, flag.partition("=")[2])
                if not 1 <= one.line <= data.count(b"\n") + 1:
                    raise Fault(f"line {one.line} is not one of the file's")
    except InvalidArgument:
        return "InvalidArgument"
    return "ok"


def _make_ignore(random: Random) -> bytes:
    return "".join(random.choice(_PATTERNS) for _ in range(random.randint(1, 12))).encode()


def _feed_ignore(data: bytes) -> str:
    """Read patterns, and match paths."""
    try:
        ignore = DockerIgnore(data.decode(errors="replace"))
    except InvalidArgument:
        return "InvalidArgument"
    for path in ("a", "a/b", "a/b/c", "é"):
        ignore.leaves_out(path)
    return "ok"


TARGETS = (
    Target("dockerfiles", _make_dockerfile, simple(_feed_dockerfile)),
    Target("dockerignore", _make_ignore, simple(_feed_ignore)),
)
