"""Tokens of URLs."""

from __future__ import annotations

import time

import pytest
from pydantic import SecretStr

from sandmesh.errors import InvalidArgument
from sandmeshd.gateway.ports.tokens import Signer, TokenTarget, new_exposure

SANDBOX = "sb_koyxivlv2mjpi6ysczakdgwyp4"


def target(**changed: object) -> TokenTarget:
    fields = {"sandbox_id": SANDBOX, "exposure_id": new_exposure(), "port": 65535, "expires": int(time.time()) + 60}
    return TokenTarget(**{**fields, **changed})  # type: ignore[arg-type]  # by name


def test_a_token_is_read_as_it_was_made_and_fits_a_name_of_the_dns() -> None:
    signer, wanted = Signer(SecretStr("s")), target()
    token = signer.sign(wanted)
    assert signer.read(token) == wanted
    assert len(token) <= 63
    assert token == token.lower()
    assert token.isalnum()


def test_every_changed_character_makes_it_worthless() -> None:
    signer = Signer(SecretStr("s"))
    token = signer.sign(target())
    for at in range(len(token)):
        other = "a" if token[at] != "a" else "b"
        assert signer.read(token[:at] + other + token[at + 1 :]) is None


@pytest.mark.parametrize("token", ["", "a", "é" * 61, "a" * 61, "-" * 200])
def test_what_is_no_token_is_nothing(token: str) -> None:
    assert Signer(SecretStr("s")).read(token) is None


def test_another_secret_or_time_makes_it_worthless() -> None:
    assert Signer(SecretStr("s")).read(Signer(SecretStr("t")).sign(target())) is None
    signer = Signer(SecretStr("s"))
    assert signer.read(signer.sign(target(expires=int(time.time()) - 1))) is None


def test_an_id_of_another_form_is_refused() -> None:
    for sandbox_id in ("sb_../x", "other", "sb_UPPER", "sb_" + "a" * 60):
        with pytest.raises(InvalidArgument):
            Signer(SecretStr("s")).sign(target(sandbox_id=sandbox_id))
