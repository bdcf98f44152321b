"""Commands on sandboxes, on one mesh for all tests of this file."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import Sandbox
from sandmeshd.templates import build_command
from tests.mesh.commands import Commands, own_mesh_id, running_mesh


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture
def box(sandmesh: Commands) -> Generator[Sandbox]:
    """Hold a sandbox with a label."""
    address = f"unix://{sandmesh.settings.paths.gateway}"
    with Sandbox(sandbox_type="base", base_url=address, labels={"team": "red"}) as opened:
        yield opened


def test_listings_have_four_forms(sandmesh: Commands, box: Sandbox) -> None:
    assert sandmesh.run("ls", "-o", "id").out == f"{box.sandbox_id}\n"
    [listed] = sandmesh.run("ls", "-o", "json").json
    assert listed["sandbox_id"] == box.sandbox_id
    assert listed["spec"]["labels"] == {"team": "red"}
    heading, row = sandmesh.run("ls").out.splitlines()
    assert heading.split()[:3] == ["SANDBOX", "TEMPLATE", "STATE"]
    assert row.split()[:3] == [box.sandbox_id, "base", "READY"]
    assert "team=red" in row
    wide = sandmesh.run("ls", "-o", "wide").out
    assert "bubblewrap" in wide
    assert wide.splitlines()[0].split()[-1] == "REASON"


def test_templates_are_listed_with_the_nodes_where_they_are_ready(sandmesh: Commands) -> None:
    heading, *rows = sandmesh.run("templates").out.splitlines()
    assert heading.split() == ["TEMPLATE", "READY", "TOOLS", "DESCRIPTION"]
    assert next(row for row in rows if row.startswith("base ")).split()[1:4] == ["1", "of", "1"]
    assert "base" in sandmesh.run("templates", "-o", "id").out.splitlines()
    [browser] = [template for template in sandmesh.run("templates", "-o", "json").json if template["name"] == "browser"]
    assert browser["nodes"][0]["driver"] == "bubblewrap"
    assert "chromium" in sandmesh.run("templates", "-o", "wide").out


def test_labels_choose_what_is_listed_and_killed(sandmesh: Commands, box: Sandbox) -> None:
    assert sandmesh.run("ls", "-l", "team=blue", "-o", "id").out == ""
    assert sandmesh.run("ls", "-l", "team=red", "-o", "id").out.strip() == box.sandbox_id
    assert sandmesh.run("kill", "-l", "team=red", "-o", "json").json == {"sandbox_ids": [box.sandbox_id]}
    assert sandmesh.run("ls", "-o", "id").out == ""


def test_kill_says_which_it_could_not_end_and_ends_the_others(sandmesh: Commands, box: Sandbox) -> None:
    done = sandmesh.run("kill", "sb_none", box.sandbox_id, ok=False)
    assert done.code == 3
    assert "SANDBOX_NOT_FOUND" in done.err
    assert done.out == f"{box.sandbox_id} is being deleted\n"


def test_kill_wants_to_be_told_what(sandmesh: Commands) -> None:
    assert sandmesh.run("kill", ok=False).code == 2
    assert sandmesh.run("kill", "--all").out == ""


def test_a_record_is_json_or_a_line_for_each_value(sandmesh: Commands, box: Sandbox) -> None:
    record = sandmesh.run("inspect", box.sandbox_id, "-o", "json").json
    assert record == sandmesh.run("inspect", box.sandbox_id).json
    lines = [line.split(None, 1) for line in sandmesh.run("inspect", box.sandbox_id, "-o", "text").out.splitlines()]
    assert lines[:2] == [["FIELD", "VALUE"], ["sandbox_id", box.sandbox_id]]
    assert ["spec.labels.team", "red"] in lines
    assert ["enforced.host_uid", record["enforced"]["host_uid"]] in lines


def test_what_is_not_there_has_an_exit_code_of_its_own(sandmesh: Commands) -> None:
    done = sandmesh.run("inspect", "sb_none", ok=False)
    assert (done.code, done.out) == (3, "")
    assert "SANDBOX_NOT_FOUND" in done.err


def test_without_a_mesh_commands_say_what_to_start() -> None:
    with own_mesh_id() as commands:
        done = commands.run("ls", ok=False)
    assert done.code == 4
    assert "sandmesh up -d" in done.err


def test_logs_come_from_the_sandbox_through_the_mesh(sandmesh: Commands, box: Sandbox) -> None:
    written = sandmesh.run("logs", box.sandbox_id).out
    entries = [json.loads(line) for line in sandmesh.run("logs", "-o", "json", box.sandbox_id).out.splitlines()]
    assert "".join(entry["text"] for entry in entries) == written
    done = sandmesh.run("logs", "sb_none", ok=False)
    assert done.code == 3


def test_a_template_of_a_file_is_built_by_the_command_that_its_error_names(sandmesh: Commands, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("name: own\ndescription: A template of a file.\nextends: base\n")
    unknown = sandmesh.run("build", "own", ok=False)
    assert "no such template: own" in unknown.err
    command = build_command("own").partition(" (")[0].replace("FILE", str(file))
    assert "own is ready" in sandmesh.run(*command.split()[1:]).err


def test_version_is_text_or_json(sandmesh: Commands) -> None:
    assert sandmesh.run("version").out.startswith("sandmesh ")
    assert set(sandmesh.run("version", "-o", "json").json) == {"version", "python", "platform"}


def test_a_shell_completes_ids_of_sandboxes_and_templates(sandmesh: Commands, box: Sandbox) -> None:
    environment = {"_SANDMESH_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    done = sandmesh.run(ok=False, COMP_WORDS="sandmesh inspect sb_", **environment)
    assert box.sandbox_id in done.out
    done = sandmesh.run(ok=False, COMP_WORDS="sandmesh build fil", **environment)
    assert "filesystem" in done.out


def test_tools_of_mcp_servers_are_added_called_and_removed_by_command(sandmesh: Commands, box: Sandbox) -> None:
    box.fs.write_from_path(Path(__file__).parents[1] / "mcp" / "mcp_program.py", "server.py")
    servers = {"good": {"command": "python", "args": ["server.py"]}, "bad": {"command": "no-such-program"}}
    added = sandmesh.run("mcp-servers", "add", box.sandbox_id, "-", stdin=json.dumps({"mcpServers": servers}), ok=False)
    assert added.code == 1
    assert [row.split()[:2] for row in added.out.splitlines()[1:]] == [["good", "READY"], ["bad", "FAILED"]]
    assert "No such file" in added.out
    assert ["echo", "good"] in [row.split()[:2] for row in sandmesh.run("tools", box.sandbox_id).out.splitlines()]
    assert sandmesh.run("call", box.sandbox_id, "echo", '{"text": "hello"}').out == "hello\n"
    failed = sandmesh.run("call", box.sandbox_id, "good.fail", "-o", "json", ok=False)
    assert (failed.code, failed.json["isError"]) == (1, True)
    removed = sandmesh.run("mcp-servers", "rm", "-o", "json", box.sandbox_id, "bad", "good")
    assert removed.json == {"names": ["bad", "good"]}
    assert sandmesh.run("mcp-servers", "ls", box.sandbox_id, "-o", "json").json == []
    assert sandmesh.run("call", box.sandbox_id, "echo", "[]", ok=False).code == 2
