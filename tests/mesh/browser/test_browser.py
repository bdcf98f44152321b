"""The browser tools with real Chromium, on pages of a server inside the sandbox."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync, Started, ToolResult
from sandmesh.errors import InvalidArgument
from tests.mesh.conftest import run_mesh

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
]

SITE = "http://localhost:8000"
PNG, JPEG = b"\x89PNG", b"\xff\xd8"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of all these tests, with the server of pages."""
    async with run_mesh() as mesh, BrowserSandboxAsync(base_url=mesh.addresses[0]) as opened:
        await opened.fs.write("pages.py", Path(__file__).with_name("browser_pages.py").read_bytes())
        server = await opened.processes.start("python3 pages.py 8000")
        await server.wait_for_port(8000)
        yield opened


async def opened(box: BrowserSandboxAsync, path: str) -> str:
    """Open a page and return the answer."""
    return good(await box.browser_navigate(f"{SITE}{path}"))


def good(result: ToolResult) -> str:
    """Return the text of what must have gone well."""
    assert not result.is_error, result.text
    return result.text


def bad(result: ToolResult) -> str:
    """Return the text of what must have failed."""
    assert result.is_error, result.text
    return result.text


def ref(snapshot: str, element: str) -> str:
    """Return the reference of an element in a snapshot, by how its line begins."""
    found = re.search(rf"{re.escape(element)}[^\n]*?\[ref=(\w+)\]", snapshot)
    assert found is not None, snapshot
    return found[1]


async def test_a_form_is_filled_field_by_field_and_sent(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/")
    assert "- Page URL: http://localhost:8000/" in page
    assert "- Page Title: Shop" in page
    page = good(await box.browser_type("Name", ref(page, 'textbox "Name"'), "Ada Lovelace"))
    page = good(await box.browser_click("Gift", ref(page, 'checkbox "Gift"')))
    page = good(await box.browser_select_option("Size", ref(page, 'combobox "Size"'), ["large"]))
    page = good(await box.browser_click("Order", ref(page, 'button "Order"')))
    assert "name=Ada+Lovelace&gift=yes&size=large" in page


async def test_a_screenshot_comes_as_an_image_and_is_kept_when_it_is_named(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/")
    shown = await box.browser_take_screenshot()
    assert shown.images[0].startswith(JPEG)
    whole = await box.browser_take_screenshot(raw=True, filename="shots/page.png", full_page=True)
    assert whole.images[0] == await box.fs.read("shots/page.png", "bytes")
    assert whole.images[0].startswith(PNG)
    element = await box.browser_take_screenshot(element="Order", ref=ref(page, 'button "Order"'))
    assert len(element.images[0]) < len(shown.images[0])


async def test_history_goes_back_and_forward(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    await opened(box, "/second")
    assert "- Page Title: Shop" in good(await box.browser_navigate_back())
    assert "- Page Title: Second" in good(await box.browser_navigate_forward())
    assert "no page to go forward to" in good(await box.browser_navigate_forward())


async def test_a_reference_of_an_older_snapshot_is_refused_with_the_new_one(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/")
    old = ref(page, 'button "Order"')
    await opened(box, "/second")
    told = bad(await box.browser_click("Order", old))
    assert "older snapshot" in told
    assert "The second page" in told
    with pytest.raises(InvalidArgument, match="ref"):
        await box.browser_click("Order", "button")


async def test_a_url_that_may_not_be_opened_is_refused_with_what_may(box: BrowserSandboxAsync) -> None:
    for url, reason in {
        "not a url": "is not a URL",
        "http://": "is not a URL",
        "ftp://example.com/": "'ftp' does not open",
        "javascript:alert(1)": "'javascript' does not open",
        "file:///etc/passwd": "outside of the workspace",
        "file:///workspace/../etc/passwd": "outside of the workspace",
    }.items():
        assert reason in bad(await box.browser_navigate(url))
    await box.fs.write("note.html", b"<title>A note</title>")
    assert "A note" in good(await box.browser_navigate("file:///workspace/note.html"))
    assert "- Page Title: Shop" in good(await box.browser_navigate("localhost:8000"))


async def test_a_browser_that_was_killed_is_started_anew_and_its_cookies_stay(box: BrowserSandboxAsync) -> None:
    await opened(box, "/noise")
    page = await opened(box, "/")
    await box.run_shell_command("pkill -9 -f user-data-dir")
    assert "ended unexpectedly" in bad(await box.browser_click("Order", ref(page, 'button "Order"')))
    assert "- Page Title: Shop" in await opened(box, "/")
    assert "The browser is closed" in good(await box.browser_close())
    assert "about:blank" in good(await box.browser_snapshot())


async def test_what_drives_browsers_is_started_anew_where_it_was_killed(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    await box.run_shell_command("pkill -9 -f [p]laywright/driver")
    assert "ended unexpectedly" in bad(await box.browser_snapshot())
    assert "- Page Title: Shop" in await opened(box, "/")
    assert "The browser is closed" in good(await box.browser_close())
    await box.run_shell_command("pkill -9 -f [p]laywright/driver")
    assert "- Page Title: Shop" in await opened(box, "/")
    await box.run_shell_command("pkill -9 -f [p]laywright/driver")
    assert "ended unexpectedly" in bad(await box.browser_navigate("localhost:8000"))
    assert "- Page Title: Shop" in await opened(box, "/")


async def test_a_stopped_call_leaves_the_browser_usable(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    result = await box.call_tool("browser_wait_for", {"text": "never there", "timeout": 0.2})
    assert "in vain for 'never there' to appear" in bad(result)
    async with box.stream("browser_wait_for", text="never there", timeout=300) as waiting:
        assert isinstance(await anext(waiting), Started)
    assert "- Page Title: Shop" in good(await box.browser_snapshot())
