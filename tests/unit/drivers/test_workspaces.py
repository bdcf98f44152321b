"""Which directories of the host may be workspaces, and why others may not."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, WorkspaceDirRefused
from sandmeshd.drivers.node.mounts.host_directories import Rules, opened
from sandmeshd.runtime.paths import MeshPaths

OTHER = os.geteuid() + 4321


@pytest.fixture
def rules(folder: Path) -> Rules:
    """Give the rules of a program's own mesh, whose user code has its uid."""
    paths = MeshPaths("unit", folder / "mesh" / "s", folder / "mesh" / "r")
    paths.make()
    return Rules(paths, (), own=True, uid=os.geteuid())


def spec(path: Path | str, **fields: object) -> sandbox_pb2.SandboxSpec:
    return sandbox_pb2.SandboxSpec(template="base", workspace_dir=str(path), **fields)  # type: ignore[arg-type]  # by name


def with_roots(rules: Rules, *roots: Path) -> Rules:
    return Rules(rules.paths, [str(root) for root in roots], own=False, uid=rules.uid)


def accepted(path: Path | str, rules: Rules) -> str:
    with opened(spec(path), rules) as found:
        assert found is not None
        assert os.fstat(found.fd).st_ino == Path(path).stat().st_ino
        return found.path


def why_not(path: Path | str, rules: Rules) -> str:
    with pytest.raises(WorkspaceDirRefused) as caught, opened(spec(path), rules):
        pass
    assert caught.value.facts["fix"] in caught.value.message
    return caught.value.message


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_who_names_no_directory_has_none(rules: Rules) -> None:
    with opened(sandbox_pb2.SandboxSpec(template="base"), rules) as found:
        assert found is None


def test_only_what_is_below_the_roots_is_allowed_wherever_links_lead(folder: Path, rules: Rules) -> None:
    root, outside = made(folder / "root"), made(folder / "outside")
    listed = with_roots(rules, root)
    inside = made(root / "a" / "b")
    (root / "out").symlink_to(outside)
    (outside / "in").symlink_to(inside)
    assert accepted(inside, listed) == str(inside)
    assert accepted(root, listed) == str(root)
    assert accepted(outside / "in", listed) == str(inside)
    for bad in (outside, root / "out", f"{root}/../outside", f"{root}x"):
        assert "SANDMESH_WORKSPACE_ROOTS" in why_not(bad, listed)
    assert str(root) in why_not(outside, listed)
    assert "allowed: none" in why_not(root, with_roots(rules))


def test_what_is_not_allowed_is_not_said_to_be_there(folder: Path, rules: Rules) -> None:
    listed = with_roots(rules, made(folder / "root"))
    there, nowhere = why_not(made(folder / "there"), listed), why_not(folder / "nowhere", listed)
    assert there.replace("there", "X") == nowhere.replace("nowhere", "X")
    assert "no such file" in why_not(folder / "root" / "none", listed)
    (folder / "root" / "file").touch()
    assert "not a directory" in why_not(folder / "root" / "file", listed)


def test_the_hosts_own_and_the_meshs_are_never_workspaces(folder: Path, rules: Rules) -> None:
    everything = with_roots(rules, Path("/"))
    for bad in ("/", "/proc", "/sys", "/dev", "/etc", "/usr/lib", "/run"):
        assert "may never be one" in why_not(bad, everything)
    for mine in (rules.paths.state, rules.paths.runtime, rules.paths.state_root, folder / "mesh"):
        assert "may never be one" in why_not(mine, everything)
        assert "may never be one" in why_not(mine, rules)
    (folder / "link").symlink_to(rules.paths.state)
    assert "may never be one" in why_not(folder / "link", everything)


def test_user_code_must_be_able_to_use_it(folder: Path, rules: Rules) -> None:
    place = made(folder / "place")
    others = Rules(rules.paths, (str(folder),), own=False, uid=OTHER)
    place.chmod(0o755)
    said = why_not(place, others)
    assert f"uid {OTHER}" in said
    assert f"u:{OTHER}:rwX" in said
    place.chmod(0o757)
    assert accepted(place, others)
    place.chmod(0o700)
    try:
        os.setxattr(place, "system.posix_acl_access", access_list(OTHER, mask=7))
    except OSError as error:
        pytest.skip(f"this file system has no access control lists: {error}")
    assert accepted(place, others)
    os.setxattr(place, "system.posix_acl_access", access_list(OTHER, mask=5))
    assert "cannot be read and written" in why_not(place, others)


def access_list(uid: int, mask: int) -> bytes:
    """Give an access control list, as linux/posix_acl_xattr.h has it: owner, a user, group, mask, others."""
    none = 0xFFFFFFFF
    entries = ((0x01, 7, none), (0x02, 7, uid), (0x04, 0, none), (0x10, mask, none), (0x20, 0, none))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.needs("root")
def test_a_program_of_an_ordinary_user_names_what_is_its_users(folder: Path, rules: Rules) -> None:
    owned = made(folder / "owned")
    os.chown(owned, OTHER, OTHER)
    os.seteuid(OTHER)
    try:
        own = Rules(rules.paths, (), own=True, uid=OTHER)
        assert accepted(owned, own)
        assert "not among those" in why_not("/srv", own)
    finally:
        os.seteuid(0)


def test_what_a_directory_cannot_do_is_refused(folder: Path, rules: Rules) -> None:
    place = made(folder / "place")
    disk = sandbox_pb2.Limits(disk_bytes=1)
    with pytest.raises(CapabilityMissing, match="disk"), opened(spec(place, limits=disk), rules):
        pass
    for bad in (spec("relative"), spec(place, snapshot_id="snap_a")):
        with pytest.raises(InvalidArgument), opened(bad, rules):
            pass


def test_one_that_is_replaced_meanwhile_is_noticed(folder: Path, rules: Rules) -> None:
    place = made(folder / "place")
    with opened(spec(place), rules) as found:
        assert found is not None
        found.check_same(str(place))
        place.rename(folder / "moved")
        (folder / "place").symlink_to("/etc")
        with pytest.raises(WorkspaceDirRefused, match="was replaced"):
            found.check_same(str(place))
        (folder / "place").unlink()
        with pytest.raises(WorkspaceDirRefused):
            found.check_same(str(place))
