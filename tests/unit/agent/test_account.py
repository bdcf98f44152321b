"""Whom user code is in an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandmeshd.agent.userland.core.account import find_account


@pytest.fixture
def etc(tmp_path: Path) -> str:
    (tmp_path / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nbroken:x:1\napp:x:1234:1235::/srv/app:/bin/sh\nbig:x:70000:1::/:/bin/sh\n"
    )
    (tmp_path / "group").write_text("root:x:0:\nstaff:x:50:app,root\nother:x:51:app\nbig:x:70000:app\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("user", "root", "ids", "home"),
    [
        ("", None, (0, 0, (50,)), "/root"),
        ("app", None, (1234, 1235, (50, 51)), "/srv/app"),
        ("app:staff", None, (1234, 50, ()), "/srv/app"),
        ("1234:7", None, (1234, 7, ()), "/srv/app"),
        ("4711", None, (4711, 4711, ()), "/"),
        ("app", True, (0, 0, ()), "/root"),
        ("app", False, (1234, 1235, (50, 51)), "/srv/app"),
        ("root", False, (1000, 1000, ()), "/"),
        ("0:staff", False, (1000, 1000, ()), "/"),
    ],
)
def test_an_images_user_is_found_by_name_or_number(
    etc: str, user: str, root: bool | None, ids: tuple[int, int, tuple[int, ...]], home: str
) -> None:
    found = find_account(user, root, etc)
    assert (found.uid, found.gid, tuple(found.groups)) == ids
    assert found.home == home


@pytest.mark.parametrize("user", ["nobody", "app:wheel", "70000", "-1", "99999999999", "big", "\u0661"])
def test_a_user_that_the_image_lacks_is_named(etc: str, user: str) -> None:
    with pytest.raises(ValueError, match="the image has no"):
        find_account(user, None, etc)


def test_an_image_without_accounts_has_root(tmp_path: Path) -> None:
    found = find_account("", None, str(tmp_path))
    assert found.variables() == {"HOME": "/root", "USER": "root", "LOGNAME": "root"}
    (tmp_path / "passwd").mkdir()
    assert find_account("5", None, str(tmp_path)).uid == 5
