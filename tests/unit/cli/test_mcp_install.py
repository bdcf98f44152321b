"""The adapter's entry in settings of MCP clients: others keep their bytes, and what is not understood stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st

from sandmesh import __version__
from sandmesh.errors import InvalidArgument
from sandmeshd.cli.mcp_clients.entries import added, read_settings, removed, write_settings
from sandmeshd.cli.mcp_clients.places import CLIENTS, settings_path

ROOT = Path(__file__).resolve().parents[3]
SANDMESH = Path(sys.executable).parent / "sandmesh"
CURSOR, CODEX = CLIENTS["cursor"], CLIENTS["codex"]
ENTRY: dict[str, object] = {"command": "/opt/bin/sandmesh", "args": ["mcp"]}
USED = (
    '{\n\t"theme": "dark",   "zoom": 1.0,\n\t"mcpServers": {"x": {"command": "y", "args": [1e3]}},\n\t"a": [1,\n2]}\n'
)
TOML = '# mine\nmodel = "gpt-5"  # the best\n\n[mcp_servers.x]\ncommand = "y"\n\n[tui]\ntheme = "dark"\n'


@pytest.mark.parametrize("text", ["", "{}", "{ }\n", '{"a": {}}', USED, '{"a":1}'])
def test_an_entry_of_json_is_added_and_removed_with_all_other_bytes_kept(text: str) -> None:
    new = added(CURSOR, text, "sandbox", ENTRY)
    before: dict[str, Any] = json.loads(text or "{}")
    servers = {**before.get("mcpServers", {}), "sandbox": ENTRY}
    assert json.loads(new) == {**before, "mcpServers": servers}
    assert added(CURSOR, new, "sandbox", ENTRY) == new
    assert removed(CURSOR, new, "sandbox") in (text, "{}\n") or json.loads(text or "{}") == {}
    if text == USED:
        assert new.startswith(USED[: USED.index("}},")])
        assert new.endswith(USED[USED.index(',\n\t"a"') :])


@pytest.mark.parametrize("text", ["", TOML, 'model = "x"'])
def test_an_entry_of_toml_is_added_and_removed_with_comments_kept(text: str) -> None:
    new = added(CODEX, text, "sandbox", ENTRY)
    assert new.startswith(text)
    assert tomllib.loads(new)["mcp_servers"]["sandbox"] == ENTRY
    changed = {**ENTRY, "args": ["mcp", "--type", "gui"]}
    assert tomllib.loads(added(CODEX, new, "sandbox", changed))["mcp_servers"]["sandbox"] == changed
    assert removed(CODEX, new, "sandbox").rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize(
    ("client", "text", "reason"),
    [
        ("cursor", '{"a": 1} // x', "not JSON"),
        ("cursor", "\ufeff{}", "not JSON"),
        ("cursor", "[]", "not a JSON object"),
        ("cursor", '{"a": 1, "a": 2}', "twice"),
        ("cursor", '{"mcpServers": []}', "not an object of servers"),
        ("cursor", "[" * 100_000, "not JSON"),
        ("cursor", '{"mcpServers": {"sandbox": {"command": "other"}}}', "another program"),
        ("codex", "a = ", "not TOML"),
        ("codex", "mcp_servers = 1", "not an object of servers"),
        ("codex", '[mcp_servers]\nsandbox = {command = "/x/sandmesh", args = ["mcp", "-t"]}', "by hand"),
        ("codex", '[mcp_servers]\nx = {command = "y"}\n[mcp_servers.sandbox]\ncommand = "z"', "another program"),
    ],
)
def test_what_is_not_understood_or_of_another_program_is_refused(client: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        added(CLIENTS[client], text, "sandbox", ENTRY)


def test_a_file_that_changed_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"new": 1}')
    with pytest.raises(InvalidArgument, match="has changed meanwhile"):
        write_settings(file, "{}", '{"lost": 1}')
    assert file.read_text() == '{"new": 1}'
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one_and_the_file_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    file.write_text("{}")
    file.chmod(0o640)
    link.symlink_to(file)
    write_settings(link, "{}", '{"a": 1}')
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, '{"a": 1}', 0o640)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@for_any(
    st.dictionaries(st.text(max_size=8) | st.just("mcpServers"), VALUES, max_size=4), st.sampled_from([None, 1, "\t"])
)
def test_any_settings_are_the_same_after_an_entry_came_and_went(
    settings: dict[str, Any], indent: int | str | None
) -> None:
    text = json.dumps(settings, indent=indent, ensure_ascii=False)
    try:
        new = added(CURSOR, text, "sandbox", ENTRY)
    except InvalidArgument:
        assert not isinstance(settings.get("mcpServers", {}), dict) or "sandbox" in settings["mcpServers"]
        return
    assert json.loads(removed(CURSOR, new, "sandbox")) == {
        key: value for key, value in settings.items() if key != "mcpServers" or value != {}
    }


@for_any(st.text(max_size=60), st.sampled_from([CURSOR, CODEX]))
def test_random_text_is_changed_rightly_or_refused(text: str, client: Any) -> None:
    try:
        new = added(client, text, "sandbox", ENTRY)
    except InvalidArgument:
        return
    read = tomllib.loads if client.toml else json.loads
    assert read(new)[client.key]["sandbox"] == ENTRY


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `sandmesh mcp` as a user with a home."""
    environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        environment.pop(name, None)
    command = [str(SANDMESH), "mcp", *arguments]
    return subprocess.run(command, env=environment, input="", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_has_an_entry_that_runs_this_program_and_loses_it(tmp_path: Path, name: str) -> None:
    client = CLIENTS[name]
    file = settings_path(client, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})
    shown = run(tmp_path, "install", name, "--dry-run")
    assert (shown.returncode, file.exists()) == (0, False)
    assert "sandbox" in shown.stdout
    refused = run(tmp_path, "install", name)
    assert (refused.returncode != 0, file.exists()) == (True, False)
    assert "--yes" in refused.stderr
    assert run(tmp_path, "install", name, "--yes", "--", "--type", "filesystem").returncode == 0
    read = tomllib.loads if client.toml else json.loads
    entry = read(file.read_text())[client.key]["sandbox"]
    assert (entry["command"], entry["args"]) == (str(SANDMESH), ["mcp", "--type", "filesystem"])
    assert file.stat().st_mode & 0o777 == 0o600
    gone = run(tmp_path, "uninstall", name, "-y", "-o", "json")
    assert json.loads(gone.stdout)["changed"] is True
    assert client.key not in read(file.read_text())


def test_options_that_the_adapter_does_not_have_and_unknown_clients_are_refused(tmp_path: Path) -> None:
    assert "No such option: --typo" in run(tmp_path, "install", "cursor", "-y", "--", "--typo", "x").stderr
    assert "claude-desktop, claude-code" in run(tmp_path, "install", "emacs", "-y").stderr
    file = tmp_path / "settings.json"
    file.write_text('{"a": 1, // mine\n}')
    refused = run(tmp_path, "install", "gemini", "-y", "--file", str(file))
    assert (refused.returncode != 0, file.read_text()) == (True, '{"a": 1, // mine\n}')
    assert "is left as it is: it is not JSON" in refused.stderr
    assert "correct it there, or name another file by --file" in refused.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_no_file_of_settings_is_refused_and_not_read_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes").write_bytes(b"\xff")
    with (tmp_path / "large").open("wb") as file:
        file.truncate((16 << 20) + 1)
    reasons = {
        Path("/dev/zero"): "not a regular file",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "folder": "Is a directory",
        tmp_path / "bytes": "not UTF-8",
        tmp_path / "large": "more than 16 MiB",
    }
    for path, reason in reasons.items():
        with pytest.raises(InvalidArgument, match=f"is left as it is: .*{reason}"):
            read_settings(path)


def test_the_registrys_metadata_is_of_this_version_and_its_name_is_in_the_readme() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    assert {server["version"], server["packages"][0]["version"]} == {__version__}
    # By which the registry sees that the package is the server's.
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text()
    assert len(server["description"]) <= 100
    # What the registry's schema of a server and its package refuses.
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    [package] = server["packages"]
    known = {"registryType", "identifier", "version", "runtimeHint", "transport"}
    assert known <= set(package) <= known | {"runtimeArguments", "packageArguments", "environmentVariables"}
    for argument in (*package["runtimeArguments"], *package["packageArguments"]):
        assert argument["type"] in ("named", "positional")
        assert argument["value"]
        assert ("name" in argument) == (argument["type"] == "named")
