"""Protections of sandboxes' walls."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ISOLATION = "services/sandmeshd/agent/userland/core/isolation.py"
_SECCOMP = "services/sandmeshd/drivers/node/seccomp.py"
_TAR = "sdk/sandmesh/shared/files/tar.py"

_FUZZ = "tests/fuzz/test_parsers.py::test_an_input_that_once_broke_a_parser_breaks_it_no_more"
_WALLS = "tests/unit/agent/test_confinement.py"
_CELLS = "tests/mesh/doors/e2b/test_e2b_interpreter.py"
_FILTER = "tests/unit/drivers/test_seccomp.py"

WALLS = (
    Mutant(
        "user code makes no user namespaces",
        _ISOLATION,
        'write("/proc/sys/user/max_user_namespaces", "0")',
        "pass",
        f"{_WALLS}::test_user_code_has_no_user_namespaces_to_make",
    ),
    Mutant(
        "settings of the kernel are read-only",
        _ISOLATION,
        "                make_read_only(place, _QUIET)",
        "                pass",
        f"{_WALLS}::test_system_settings_are_mounted_read_only",
    ),
    Mutant(
        "nothing is written beside a user's home",
        _ISOLATION,
        "    make_read_only(_HOMES, syscalls.MS_NOSUID | syscalls.MS_NODEV)\n",
        "",
        f"{_CELLS}::test_cells_commands_and_terminals_begin_in_home_user_by_its_own_path",
    ),
    Mutant(
        "user code has no capabilities",
        _ISOLATION,
        "    syscalls.drop_capabilities()\n    restrict(seccomp)\n",
        "    restrict(seccomp)\n",
        f"{_WALLS}::test_there_are_no_capabilities_and_no_ways_to_new_ones",
    ),
    Mutant(
        "chroot is denied",
        _SECCOMP,
        '*("chroot", "pivot_root", ',
        '*("pivot_root", ',
        f"{_FILTER}::test_the_agent_may_make_namespaces_but_no_more",
    ),
    Mutant(
        "set_mempolicy_home_node and vmsplice are denied",
        _SECCOMP,
        '    *("set_mempolicy_home_node", "vmsplice"),\n',
        "",
        f"{_FILTER}::test_user_code_is_denied_set_mempolicy_home_node_and_vmsplice",
    ),
    Mutant(
        "unshare is denied to user code",
        _SECCOMP,
        '"unshare", "setns", ',
        '"setns", ',
        f"{_FILTER}::test_user_code_is_denied_what_could_undo_its_walls",
    ),
    Mutant(
        "mount_setattr is denied to user code",
        _SECCOMP,
        '"umount2", "mount_setattr", ',
        '"umount2", ',
        f"{_FILTER}::test_user_code_is_denied_what_could_undo_its_walls",
    ),
    Mutant(
        "nothing types into its terminal",
        _SECCOMP,
        "(termios.TIOCSTI, termios.TIOCLINUX)",
        "(termios.TIOCLINUX,)",
        f"{_FILTER}::test_user_code_is_denied_what_could_undo_its_walls",
    ),
    Mutant(
        "only three families of sockets",
        _SECCOMP,
        "SOCKET_FAMILIES = (1, 2, 10)",
        "SOCKET_FAMILIES = (1, 2, 10, 16)",
        f"{_FILTER}::test_user_code_is_denied_what_could_undo_its_walls",
    ),
    Mutant(
        "files are opened beneath their directory",
        "services/sandmeshd/agent/files/syscalls.py",
        "resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS |",
        "resolve = _RESOLVE_NO_MAGICLINKS |",
        "tests/unit/agent/files/test_confine.py::test_nothing_outside_is_reached",
    ),
    Mutant(
        "no member of an archive leads outside",
        _TAR,
        '        raise refuse(path, "leads outside")',
        "        pass",
        "tests/unit/agent/files/test_walking.py::test_an_archive_that_leads_out_leaves_nothing",
    ),
    Mutant(
        "no member of an archive is a device",
        _TAR,
        'raise refuse(member.name, "is a device or FIFO")',
        "return",
        "tests/unit/agent/files/test_walking.py::test_an_archive_that_leads_out_leaves_nothing",
    ),
    Mutant(
        "names of tools have no control characters",
        "services/sandmeshd/agent/mcp/client/tool_list.py",
        "if CONTROLS.search(name):",
        "if False:",
        "tests/unit/agent/test_mcp.py::test_a_tool_with_control_characters_in_its_name_is_refused",
    ),
    Mutant(
        "control characters never reach a terminal",
        "services/sandmeshd/cli/terminal/output.py",
        "    if text.isprintable():",
        "    if True:",
        "tests/unit/cli/test_output.py::test_control_characters_from_sandboxes_never_reach_the_terminal",
    ),
    Mutant(
        "settings of an MCP client that changed meanwhile are not overwritten",
        "services/sandmeshd/cli/mcp_clients/entries.py",
        "    if read_settings(target) != before:",
        "    if False:",
        "tests/unit/cli/test_mcp_install.py::test_a_file_that_changed_meanwhile_is_left_as_it_is",
    ),
    Mutant(
        "another program's entry in the settings of an MCP client is not replaced",
        "services/sandmeshd/cli/mcp_clients/entries.py",
        'return "sandmesh" in [',
        'return True or "sandmesh" in [',
        "tests/unit/cli/test_mcp_install.py::test_what_is_not_understood_or_of_another_program_is_refused",
    ),
    Mutant(
        "a tar stream with a broken header is refused",
        _TAR,
        "    except (tarfile.TarError, ValueError, OverflowError) as error:",
        "    except tarfile.TarError as error:",
        _FUZZ,
    ),
    Mutant(
        "a block nested deep breaks no other call",
        "sdk/sandmesh/events.py",
        "        block: object = json.loads(content.json)\n    except (ValueError, RecursionError):",
        "        block: object = json.loads(content.json)\n    except ValueError:",
        _FUZZ,
    ),
)
