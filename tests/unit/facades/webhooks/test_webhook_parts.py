"""Signatures of webhooks, and what an operator may write of one."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path

import pytest

from sandmesh.errors import AlreadyExists, InvalidArgument, NotFound, Unauthenticated
from sandmesh.mesh.webhooks import new_secret, sign, verify
from sandmeshd.facades.webhooks.hooks import Hook, Hooks

SECRET = new_secret()
BODY = b'{"id": "1"}'


ROOT = Path(__file__).resolve().parents[4]


def headers(moment: int, signature: str) -> dict[str, str]:
    return {"Webhook-Id": "e1", "webhook-timestamp": str(moment), "WEBHOOK-SIGNATURE": signature}


def test_a_signature_is_checked_with_its_id_time_and_body() -> None:
    now = int(time.time())
    signature = sign(SECRET, "e1", now, BODY)
    assert verify(SECRET, headers(now, f"v1,AAAA {signature}"), BODY) == {"id": "1"}
    for other in (
        sign(SECRET, "e2", now, BODY),
        sign(SECRET, "e1", now - 1, BODY),
        sign(new_secret(), "e1", now, BODY),
    ):
        with pytest.raises(Unauthenticated):
            verify(SECRET, headers(now, other), BODY)
    with pytest.raises(Unauthenticated):
        verify(SECRET, headers(now, signature), BODY + b" ")


@pytest.mark.parametrize("moment", ["", "-1", "x", "9" * 400, "1e3", "\u0663", "0"])
def test_a_request_without_a_time_of_these_minutes_is_refused(moment: str) -> None:
    with pytest.raises(Unauthenticated, match="timestamp"):
        verify(SECRET, {"webhook-id": "e", "webhook-timestamp": moment, "webhook-signature": "v1,x"}, BODY)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_***", base64.b64encode(bytes(32)).decode(), "whsec_QUFB"])
def test_a_secret_of_another_form_is_refused(secret: str) -> None:
    with pytest.raises(InvalidArgument, match="whsec_"):
        sign(secret, "e", 0, b"")


@pytest.mark.parametrize("body", [b"[]", b"{", b"", b"[" * 100_000])
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    now = int(time.time())
    with pytest.raises(InvalidArgument):
        verify(SECRET, headers(now, sign(SECRET, "e1", now, body)), body)


@pytest.mark.parametrize(
    "url", ["", "ftp://a/b", "https://", "http://a:b/", "https://u:p@host/", "//host", "http://a:99999/"]
)
def test_a_url_of_another_form_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        Hooks(tmp_path).add(Hook(name="a", url=url, secret=SECRET), "0-0")
    assert list(tmp_path.iterdir()) == []


def test_a_webhook_is_kept_and_its_secret_is_its_owners(tmp_path: Path) -> None:
    hooks, hook = Hooks(tmp_path / "hooks"), Hook(name="a", url="https://host/", secret=SECRET, kinds=("lost",))
    hooks.add(hook, "5-1")
    assert (hooks.get("a"), hooks.progress("a").cursor) == (hook, "5-1")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "hooks").iterdir()} == {0}
    assert SECRET not in repr(hook)
    with pytest.raises(AlreadyExists):
        hooks.add(hook, "0-0")
    with pytest.raises(NotFound):
        hooks.get("../a")


def test_a_dead_letter_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    hooks = Hooks(tmp_path)
    hooks.add(Hook(name="a", url="https://host/", secret=SECRET), "0-0")
    hooks.bury("a", {"event": {}}, 1)
    hooks.bury("a", {"event": {}}, 10_001)
    with (tmp_path / "a.dead.json").open("a") as file:
        file.write(json.dumps({"event": {}})[:-3])
    assert hooks.dead("a") == [{"event": {}}]


def test_the_programs_of_the_page_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "webhooks.md").read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, "webhooks.md", "exec"), {})  # noqa: S102 - it is a program of the documentation
    assert blocks
