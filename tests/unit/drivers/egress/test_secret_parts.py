"""What hides values in answers, and what finds placeholders in what leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandmesh.shared.hosts import read_host
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.secrets.mask import FrameMask, Mask
from sandmeshd.drivers.egress.secrets.table import SecretTable, TableSecret

VALUE, PLACEHOLDER = b"sk-live-12345678", b"sandmesh_secret_abc"
OWN, OTHER = EgressTarget("api.test", 443), EgressTarget("other.test", 443)


def table(value: bytes | None = VALUE, host: str = "api.test") -> SecretTable:
    return SecretTable([TableSecret("API_KEY", PLACEHOLDER, (read_host(host),), value)])


@given(st.lists(st.sampled_from([VALUE, VALUE[:5], VALUE[5:], b"sk-", b"text", b"\n"]), max_size=12), st.data())
def test_a_mask_hides_a_value_wherever_it_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    mask = Mask([VALUE])
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    passed = b"".join([*map(mask.feed, pieces), mask.rest()])
    assert passed == whole.replace(VALUE, b"*" * len(VALUE))


def test_a_mask_hides_a_value_in_letters_of_any_case() -> None:
    assert Mask([VALUE]).whole(b"x-" + VALUE.upper(), any_case=True) == b"x-" + b"*" * len(VALUE)


def frame(payload: bytes) -> bytes:
    size = len(payload)
    head = bytes([0x82, size]) if size < 126 else bytes([0x82, 126]) + size.to_bytes(2, "big")
    return head + payload


@given(st.lists(st.sampled_from([VALUE, VALUE[:5], b"text", b"x" * 200, b""]), min_size=1, max_size=6), st.data())
def test_a_mask_of_frames_hides_a_value_wherever_it_is_cut_and_holds_no_whole_frame(
    payloads: list[bytes], data: st.DataObject
) -> None:
    mask = FrameMask([VALUE])
    for payload in payloads:
        whole = frame(payload)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
        pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert b"".join(map(mask.feed, pieces)) == whole.replace(VALUE, b"*" * len(VALUE))


@given(st.binary(max_size=200), st.lists(st.integers(0, 240), max_size=6))
def test_a_scan_finds_a_placeholder_wherever_it_is_cut(noise: bytes, cuts: list[int]) -> None:
    whole = noise + PLACEHOLDER + noise
    look = table().scan(OTHER)
    edges = sorted({min(cut, len(whole)) for cut in cuts})

    def carry() -> None:
        for start, end in zip([0, *edges], [*edges, len(whole)], strict=True):
            look(whole[start:end])

    with pytest.raises(EgressRefused, match=r"API_KEY was sent to other\.test:443"):
        carry()


def test_headers_get_the_value_for_their_host_alone() -> None:
    headers = [(b"Authorization", b"Bearer " + PLACEHOLDER), (b"X-Two", PLACEHOLDER + b":" + PLACEHOLDER)]
    filled = table().filled(OWN, headers)
    assert filled == [(b"Authorization", b"Bearer " + VALUE), (b"X-Two", VALUE + b":" + VALUE)]
    with pytest.raises(EgressRefused):
        table().filled(OTHER, headers)


def test_a_wildcard_is_for_names_below_it_on_the_port_of_tls() -> None:
    wild = table(host="*.api.test")
    assert wild.covers(EgressTarget("eu.api.test", 443))
    assert not wild.covers(EgressTarget("api.test", 443))
    assert not wild.covers(EgressTarget("eu.api.test", 80))
    assert table(host="api.test:8443").covers(EgressTarget("api.test", 8443))
    assert not table(host="api.test:8443").covers(OWN)


def test_a_value_that_was_taken_away_refuses_its_requests() -> None:
    with pytest.raises(EgressRefused, match="has no value any more"):
        table(None).filled(OWN, [(b"X", PLACEHOLDER)])


def test_nothing_shows_a_value_by_accident() -> None:
    assert VALUE.decode() not in repr(TableSecret("API_KEY", PLACEHOLDER, (), VALUE))
