"""What becomes of headers on their way."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict, CIMultiDictProxy

from sandmeshd.gateway.ports.headers import PortOrigin, for_client, for_server
from sandmeshd.runtime.http.headers import end_to_end

PLACE = PortOrigin("http://127.0.0.1:8571", "/p/token", 8000)
HOST = PortOrigin("http://token.ports.example", "", 8000)


def multidict(*headers: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(headers))


def test_headers_of_one_hop_stay_there() -> None:
    headers = multidict(
        ("Connection", "keep-alive, X-Mine"),
        ("Keep-Alive", "5"),
        ("X-Mine", "1"),
        ("TE", "trailers"),
        ("Accept", "*/*"),
    )
    assert list(end_to_end(headers).items()) == [("Accept", "*/*")]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/a?b", "/p/token/a?b"),
        ("a/b", "a/b"),
        ("http://localhost:8000/a", "http://127.0.0.1:8571/p/token/a"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8571/p/token/"),
        ("http://localhost:9000/a", "http://localhost:9000/a"),
        ("https://example.org/a", "https://example.org/a"),
        ("//example.org/a", "//example.org/a"),
    ],
)
def test_a_redirect_inside_stays_below_the_url(inside: str, outside: str) -> None:
    assert for_client(multidict(("Location", inside)), PLACE)["Location"] == outside


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("a=b", "a=b; Path=/p/token/"),
        ("a=b; Path=/; Domain=localhost; HttpOnly", "a=b; Path=/p/token/; HttpOnly"),
        ("a=b; path=/x", "a=b; Path=/p/token/x"),
        ("a=b; Path =/", "a=b; Path=/p/token/"),
        ("a=b;\tPATH\t= /x ; Secure", "a=b; Path=/p/token/x; Secure"),
        ("a=b; Domain =example.org; Domain", "a=b; Path=/p/token/"),
        ("a=b; Path=/x; Path=/", "a=b; Path=/p/token/"),
        ("a=b; Path=x; Path", "a=b; Path=/p/token/"),
        ("path=/; Secure", "path=/; Path=/p/token/; Secure"),
    ],
)
def test_a_cookie_is_for_its_port_alone(inside: str, outside: str) -> None:
    assert for_client(multidict(("Set-Cookie", inside)), PLACE)["Set-Cookie"] == outside


OF_ORIGIN = ("Service-Worker-Allowed", "clear-site-data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To")


@pytest.mark.parametrize("name", OF_ORIGIN)
def test_a_header_that_reaches_beyond_its_path_is_dropped_where_ports_share_an_origin(name: str) -> None:
    headers = multidict((name, "/"), ("X-Mine", "1"), (name, "2"))
    assert list(for_client(headers, PLACE).items()) == [("X-Mine", "1")]
    assert len(for_client(headers, HOST)) == 3


@pytest.mark.parametrize("attribute", ["Domain=x", "domain =x", "\tDOMAIN\t=\tx", "Domain"])
def test_a_cookie_of_a_host_of_its_own_has_no_domain_however_it_is_written(attribute: str) -> None:
    found = for_client(multidict(("Set-Cookie", f"a=b;{attribute}; Path=/y")), HOST)
    assert found["Set-Cookie"] == "a=b; Path=/y"


def test_several_cookies_stay_several_and_a_host_of_its_own_needs_no_path() -> None:
    found = for_client(multidict(("Set-Cookie", "a=b; Domain=x"), ("Set-Cookie", "c=d; Path=/y")), HOST)
    assert found.getall("Set-Cookie") == ["a=b", "c=d; Path=/y"]


@pytest.mark.parametrize("location", ["http://localhost:99999/", "http://[::1", "http://localhost:x/", "//[x"])
def test_a_redirect_to_what_is_no_url_passes_as_it_is(location: str) -> None:
    assert for_client(multidict(("Location", location)), PLACE)["Location"] == location


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("a=b; sandmesh-console=KEY; c=d", "a=b; c=d"),
        ("sandmesh-console=KEY", None),
        ("sandmesh-console = KEY;a=b", "a=b"),
        ("my-sandmesh-console=x", "my-sandmesh-console=x"),
    ],
)
def test_a_session_of_the_console_reaches_no_sandbox(sent: str, arrives: str | None) -> None:
    request = make_mocked_request("GET", "/p/token/", headers={"Cookie": sent})
    assert for_server(request, PLACE).get("Cookie") == arrives
