"""Dockerfiles as steps in a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandmesh.integrations.dockerfiles import Build, Copy, DockerfileRefused, Run

WHOLE = """\
# syntax=docker/dockerfile:1
FROM ubuntu:24.04 AS only

ARG VERSION=1.2
ENV NAME="a b" GREETING=hello\\ there
env PATH /app/bin:$PATH
WORKDIR /app
RUN make \\
    # between lines
    all

WORKDIR src
COPY one.txt two.txt ./
COPY data/ /data
COPY ["one.txt", "/etc/${NAME}/${MISSING:-else}"]
RUN ["python3", "-c", "print(1)"]
USER root
EXPOSE 80
CMD ["sleep", "infinity"]
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "data").mkdir()
    return tmp_path


def test_instructions_become_commands_and_copies_in_order(context: Path) -> None:
    build = Build("/workspace", {"PATH": "/bin"})
    made, both, whole, one, ran = build.steps(WHOLE, context)
    assert isinstance(made, Run)
    assert isinstance(ran, Run)
    assert (made.command, made.cwd) == ("make all", "/app")
    assert made.env == {"VERSION": "1.2", "NAME": "a b", "GREETING": "hello there", "PATH": "/app/bin:/bin"}
    assert both == Copy((context / "one.txt", context / "two.txt"), "/app/src", into=True)
    assert whole == Copy((context / "data",), "/data", into=False)
    assert one == Copy((context / "one.txt",), "/etc/a b/else", into=False)
    assert (ran.command, ran.cwd) == ("python3 -c 'print(1)'", "/app/src")
    assert build.workdir == "/app/src"
    assert build.env["PATH"] == "/app/bin:/bin"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM a\nFROM b", "several stages"),
        ("FROM a\nCOPY --from=other /x /y", "line 2 .*only the task's own files"),
        ("FROM a\nADD https://example.org/x /x", "not among the task's files"),
        ("FROM a\nCOPY ../../../etc/passwd /x", "not among the task's files"),
        ("FROM a\nCOPY absent.txt /x", "absent.txt is not among"),
        ("FROM a\nRUN --mount=type=cache,target=/c make", "no mounts"),
        ("FROM a\nRUN cat <<EOF\nx\nEOF", "here-documents"),
        ("FROM a\nUSER nobody", "line 2 .*USER nobody"),
        ("FROM a\nVOLUME /data", "VOLUME /data"),
        ("FROM a\nENV A='b", "No closing quotation"),
        ("FROM a\nRUN [1,", "line 2 of the Dockerfile, RUN"),
    ],
)
def test_what_no_sandbox_carries_out_is_refused_by_its_line(context: Path, text: str, said: str) -> None:
    with pytest.raises(DockerfileRefused, match=said):
        list(Build("/workspace").steps(text, context))


def test_a_dockerignore_is_not_overlooked(context: Path) -> None:
    (context / ".dockerignore").write_text("data")
    with pytest.raises(DockerfileRefused, match="dockerignore"):
        list(Build("/workspace").steps("FROM a\nCOPY . /app", context))
    assert list(Build("/workspace").steps("FROM a\nCOPY one.txt /app", context))
