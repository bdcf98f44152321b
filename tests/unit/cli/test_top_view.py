"""The screen of `sandmesh top`: what fits into a terminal, and what text from sandboxes cannot do to it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.mesh.messages import read_event, read_health, read_sandbox
from sandmeshd.cli.top.view import BY_USE, ORDERS, TopState, render

HOSTILE = "\x1b]0;taken\x07\x1b[2J[red]long\n" * 20


def _state(count: int) -> TopState:
    sandboxes = [
        pb.Sandbox(sandbox_id=f"sb_{at:026}", user_id=HOSTILE, state=pb.SANDBOX_STATE_READY, node_id=HOSTILE)
        for at in range(count)
    ]
    event = pb.SandboxEvent(event_id="1-0", kind="failed", reason=HOSTILE, actor=HOSTILE)
    health = pb.GetMeshHealthResponse()
    health.troubles.add(part="the store", detail=HOSTILE)
    return TopState(
        "unix:///run/" + "x" * 200,
        sandboxes=[read_sandbox(sandbox) for sandbox in sandboxes],
        events=[read_event(event)] * 20,
        health=read_health(health),
    )


@pytest.mark.parametrize("count", [0, 1, 3000])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12)])
def test_the_screen_fits_and_text_of_sandboxes_is_only_text(count: int, width: int, height: int) -> None:
    state = _state(count)
    for order in (*ORDERS, BY_USE):
        state.order = order
        state.move(50)
        written = io.StringIO()
        console = Console(file=written, width=width, height=height, force_terminal=False, color_system=None)
        console.print(render(state, width, height))
        lines = written.getvalue().splitlines()
        assert all(len(line) <= width for line in lines)
        assert len(lines) <= height + 8
        assert not {"\x1b", "\x07"} & set("".join(lines))
        assert any("the store: " in line for line in lines)
        assert count == 0 or any(state.selected in line for line in lines)
