"""Dockerfiles: how they are read, beside Docker's own parser where there is one, and what is refused by its line."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks import dockerfiles

from sandmesh.errors import InvalidArgument
from sandmesh.shared.files.dockerignore import DockerIgnore
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.mounts import read_mount
from sandmeshd.images.builds.stages import read_stages
from sandmeshd.images.builds.state import State
from sandmeshd.images.dockerfile import ParsedInstruction, expand, parse_dockerfile, raw_words
from sandmeshd.images.dockerfile.words import WordError

FORMS = r"""# syntax=docker/dockerfile:1
# a comment
ARG BASE=debian:12
FROM ${BASE} AS build
  RUN --mount=type=cache,target=/c  echo \
  # a comment within
    one \

    two
run <<EOF
echo hi
FROM not
EOF
COPY --chown=1:2 <<a.txt <<-"b.txt" /dst/
x $y
a.txt
	tab
	b.txt
RUN cat <<'E1' > /x && cat <<E2
first
E1
second
E2
RUN ["/bin/echo", "a b"]
ENV A=1 B="two words" C=a\ b
ENV OLD  way of it
LABEL a="x\"y" 'b'=c
RUN echo "<<NOT" && true
ONBUILD RUN echo
HEALTHCHECK --interval=5s CMD true
FROM scratch
COPY --from=build /a /b
"""


@pytest.mark.skipif(find_spec("dockerfile") is None, reason="Docker's parser has no package for this machine")
def test_instructions_are_those_that_dockers_parser_reads() -> None:
    reference: Any = import_module("dockerfile")
    expected = reference.parse_string(FORMS)
    found = parse_dockerfile(FORMS.encode())
    assert [one.name for one in found] == [one.cmd.upper() for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.line, one.flags) == (other.start_line, other.flags)
        assert [each.name for each in one.heredocs] == [each.name for each in other.heredocs]
        # The other leaves the tabs of <<- for later.
        assert [each.content for each in one.heredocs] == [each.content.replace("\t", "") for each in other.heredocs]
        if one.name in ("RUN", "FROM", "COPY"):
            words = list(one.words) if one.words is not None else one.text.split()
            assert words == [word for value in other.value for word in ([value] if other.json else value.split())]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("$A", "x"),
        ("${A}y$EMPTY", "xy"),
        ("${B:-d}${EMPTY:-e}${EMPTY-f}", "de"),
        ("${A:+p}${B+q}", "p"),
        ("'$A'\"$A b\"", "$Ax b"),
        (r"\$A a\ b", "$A a b"),
        ("${B:-${A}z}", "xz"),
        ('"a\\"b\\c"', 'a"b\\c'),
        ("5$", "5$"),
    ],
)
def test_words_have_their_variables_in_place(word: str, value: str) -> None:
    assert expand(word, {"A": "x", "EMPTY": ""}) == value


@pytest.mark.parametrize("word", ["${A", "'a", '"a', "${A#b}", "${B:?is needed}", "${}"])
def test_words_that_are_none_are_refused(word: str) -> None:
    with pytest.raises(WordError):
        expand(word, {"A": "x"})


def test_words_are_divided_outside_of_quotes() -> None:
    assert raw_words(r"""A=1 B="two words" C=a\ b 'd e'""") == ["A=1", 'B="two words"', r"C=a\ b", "'d e'"]


def test_another_escape_character_may_be_chosen() -> None:
    (_, run) = parse_dockerfile(b"# escape=`\nFROM a\nRUN one `\n  C:\\\n")
    assert run.text == "one   C:\\"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no instruction"),
        ("RUN x", "line 1 of the Dockerfile, RUN x: a Dockerfile begins with FROM"),
        ("FROM a b", "line 1 .*FROM IMAGE AS NAME"),
        ("FROM a\nRUN <<EOF\nx", "line 2 .*a line EOF is missing"),
        ("# escape=x\nFROM a", "line 1 .*escape"),
        ("# syntax=example.org/frontend:1\nFROM a", "line 1 .*no other program is started"),
        ("\xff", "not UTF-8"),
    ],
)
def test_what_is_no_dockerfile_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_stages(parse_dockerfile(text.encode("latin-1")))


def test_state_follows_the_instructions() -> None:
    state = State(
        config={"config": {"Env": ["PATH=/bin"], "Cmd": ["sh"]}}, overrides={"GIVEN": "g"}, globals={"G": "x"}
    )
    text = """FROM a
ARG GIVEN=d
ARG G
ARG MINE=$GIVEN$G
ENV A=$MINE B=$A
WORKDIR /srv
WORKDIR app/$A
USER 1:2
EXPOSE 80 53/udp
LABEL "a b"=c
SHELL ["/bin/bash", "-c"]
ENTRYPOINT run it
STOPSIGNAL SIGINT
VOLUME /data
"""
    for one in parse_dockerfile(text.encode())[1:]:
        assert state.apply(one)
    assert state.config["config"] == {
        "Env": ["PATH=/bin", "A=gx", "B="],
        "WorkingDir": "/srv/app/gx",
        "User": "1:2",
        "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
        "Labels": {"a b": "c"},
        "Shell": ["/bin/bash", "-c"],
        "Entrypoint": ["/bin/bash", "-c", "run it"],
        "StopSignal": "SIGINT",
        "Volumes": {"/data": {}},
    }
    assert state.directories == ["/srv", "/srv/app/gx"]
    assert state.environment["GIVEN"] == "g"


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ("type=ssh", "type ssh is not supported"),
        ("type=bind,target=/x,rw", "rw of a mount of type bind"),
        ("type=cache", "needs a target"),
        ("type=cache,target=/", "cannot be /"),
        ("type=cache,target=/c,sharing=private", "sharing=private"),
        ("type=cache,target=/c,from=x", "from of a mount of type cache"),
    ],
)
def test_mounts_that_are_not_supported_are_refused(mount: str, message: str) -> None:
    one = ParsedInstruction(7, "RUN", (f"--mount={mount}",), "true")
    with pytest.raises(InvalidArgument, match=f"line 7 .*{message}"):
        read_mount(one, State(config={}), mount)


def test_dockerignore_leaves_out_what_its_patterns_match() -> None:
    ignore = DockerIgnore(
        "# a comment\n*.log\n!keep.log\n/node_modules\n**/*.pyc\nsub/**/x\n[ab].txt\n\ndir/\n!dir/in\n"
    )
    out = ["a.log", "node_modules/a/b", "x.pyc", "p/q/x.pyc", "sub/x", "sub/a/b/x", "a.txt", "dir", "dir/other"]
    kept = ["keep.log", "p/a.log", "p/node_modules", "c.txt", "dir/in", "dir/in/deep", "sub/y"]
    assert [path for path in out if not ignore.leaves_out(path)] == []
    assert [path for path in kept if ignore.leaves_out(path)] == []


def test_files_of_a_build_have_a_digest_of_what_they_are(tmp_path: Path) -> None:
    context, target = tmp_path / "context", tmp_path / "tar"
    (context / "sub").mkdir(parents=True)
    (context / "sub" / "a").write_text("a")
    first = Context(context).spool(["sub", "*"], target)
    (context / "sub" / "a").touch()
    assert Context(context).spool(["sub", "*"], target) == first
    assert first.count == 2
    (context / "sub" / "a").chmod(0o755)
    assert Context(context).spool(["sub", "*"], target).digest != first.digest
    for pattern in ("../secret", "missing"):
        with pytest.raises(InvalidArgument, match=r"outside of|not there"):
            Context(context).spool([pattern], target)
    (tmp_path / "secret").write_text("s")
    (context / "out").symlink_to("../secret")
    with pytest.raises(InvalidArgument, match="leads out"):
        Context(context).spool(["out"], target)
    with pytest.raises(InvalidArgument, match="left out by"):
        Context(context, DockerIgnore("sub")).spool(["sub"], target)


@pytest.mark.parametrize("name", sorted(dockerfiles.FORMS))
def test_forms_that_the_public_has_are_read_whole(name: str) -> None:
    for stage in read_stages(parse_dockerfile(dockerfiles.FORMS[name].text.encode())).stages:
        state = State(config={})
        for one in stage.instructions:
            mounts = [
                read_mount(one, state, flag.partition("=")[2]) for flag in one.flags if flag.startswith("--mount")
            ]
            assert state.apply(one) or one.name in {"RUN", "COPY", "ADD"}, one
            assert all(mount.kind in {"bind", "cache"} for mount in mounts)
