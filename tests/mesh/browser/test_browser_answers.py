"""What the browser's tools answer: bounded, with what is new, soon where waiting is in vain, no passwords."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, PERSON, viewing

pytestmark = [
    pytest.mark.needs("user namespaces"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

TABLE = """<title>Orders</title><h1>Orders</h1><table><tbody id=rows></tbody></table><script>
for (let n = 0; n < 500; n++) {
  const row = rows.insertRow();
  row.innerHTML = `<td>Order ${n}</td><td>Customer ${n} of the shop</td><td class=state>Open</td>` +
    `<td><button aria-label="Pay ${n}">Pay</button></td><td><a href="#${n}">Details</a></td>`;
  row.querySelector('button').onclick = () => { row.querySelector('.state').textContent = 'Paid' };
}</script>"""
FORM = """<title>Form</title><button id=send disabled>Send</button><input aria-label=Total readonly value=7>
<select aria-label=Size><option value=s>Small</option><option value=l>Large</option>
<option disabled>None</option></select>
<label>Password <input id=password type=password></label>
<button onclick="password.type = 'text'">Show</button>
<canvas width=200 height=100 style="position:absolute;left:100px;top:200px;background:#eee"
onclick="out.textContent += `clicked ${event.offsetX},${event.offsetY}`"
onmousemove="if (event.buttons) out.textContent += `dragged ${event.offsetX},${event.offsetY}`"></canvas>
<p id=out></p>"""
LATE = """<title>Late</title><button onclick="out.textContent = `clicks: ${++clicks}`">Pay</button><p id=out></p>
<script>
let clicks = 0;
const late = () => { for (const end = performance.now() + 800; performance.now() < end;); };
addEventListener('mousemove', late, { once: true, capture: true });
</script>"""

PLACE = """() => {
  const box = [...document.querySelectorAll('button')].at(-1).getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[BrowserSandboxAsync]:
    """Open the sandbox of these tests."""
    async with run_mesh() as mesh, BrowserSandboxAsync(base_url=mesh.addresses[0], timeout=120) as opened:
        await opened.fs.write("orders.html", TABLE.encode())
        await opened.fs.write("form.html", FORM.encode())
        await opened.fs.write("late.html", LATE.encode())
        yield opened


async def refs(box: BrowserSandboxAsync, name: str, *labels: str) -> list[str]:
    """Open a page and return the references of what has labels."""
    lines = (await box.browser_navigate(f"file:///workspace/{name}")).text.splitlines()
    found = [next(line for line in lines if f'"{label}"' in line) for label in labels]
    return [line.partition("[ref=")[2].partition("]")[0] for line in found]


async def test_an_answer_on_a_long_page_has_what_is_new_and_the_whole_comes_in_parts(box: BrowserSandboxAsync) -> None:
    first = await box.browser_navigate("file:///workspace/orders.html")
    assert 10_000 < len(first.text) < 21_000
    pay = next(line for line in first.text.splitlines() if '"Pay 7"' in line)
    ref = pay.partition("[ref=")[2].partition("]")[0]
    paid = await box.browser_click("Pay", ref)
    assert "Paid" in paid.text
    assert "Order 7" in paid.text
    assert len(paid.text) < 1000
    hovered = await box.browser_hover("Pay", ref)
    assert "unchanged" in hovered.text
    assert len(hovered.text) < 330
    whole, start = "", 1
    while start:
        shown = (await box.browser_snapshot(start_line=start)).text
        whole += shown
        found = shown.rpartition("start_line=")[2].split()[0] if "start_line=" in shown else ""
        start = int(found) if found else 0
    assert all(f'"Pay {number}"' in whole for number in range(500))
    row = [line for line in whole.partition("Order 499")[0].splitlines() if "- row" in line][-1]
    alone = await box.browser_snapshot(ref=row.partition("[ref=")[2].partition("]")[0])
    assert '"Pay 499"' in alone.text
    assert '"Pay 498"' not in alone.text
    # Its references work after all of these.
    last = next(line for line in whole.splitlines() if '"Pay 499"' in line)
    assert "Paid" in (await box.browser_click("Pay", last.partition("[ref=")[2].partition("]")[0])).text


async def test_what_waiting_does_not_mend_is_said_with_what_there_is(box: BrowserSandboxAsync) -> None:
    send, total, size = await refs(box, "form.html", "Send", "Total", "Size")
    clicked = await box.browser_click("Send", send)
    assert clicked.is_error
    assert "it is disabled" in clicked.text
    typed = await box.browser_type("Total", total, "8")
    assert typed.is_error
    assert "read-only" in typed.text
    for wanted in ("Huge", "None"):
        selected = await box.browser_select_option("Size", size, [wanted])
        assert selected.is_error
        assert f"no option '{wanted}' to select" in selected.text
        assert "'Small' (value 's'), 'Large' (value 'l'), 'None' (disabled)" in selected.text
    assert "is not a drop-down" in (await box.browser_select_option("Send", send, ["x"])).text
    assert not (await box.browser_select_option("Size", size, ["Large"])).is_error
    assert not (await box.browser_select_option("Size", size, ["s"])).is_error
    await box.browser_evaluate("() => { setTimeout(() => { send.disabled = false }, 200) }")
    assert not (await box.browser_click("Send", send)).is_error


async def test_points_of_a_canvas_are_clicked_and_dragged(box: BrowserSandboxAsync) -> None:
    await box.browser_navigate("file:///workspace/form.html")
    assert "clicked 50,25" in (await box.browser_mouse_click_xy("canvas", 150, 225)).text
    assert "dragged 90,60" in (await box.browser_mouse_drag_xy("canvas", 110, 210, 190, 260)).text
    assert not (await box.browser_mouse_move_xy("canvas", 150, 225)).is_error
    assert not (await box.browser_mouse_wheel(delta_y=100)).is_error
    outside = await box.browser_mouse_click_xy("canvas", 5000, 5)
    assert outside.is_error
    assert "1280 x 720 pixels" in outside.text


async def test_a_password_that_a_person_typed_is_in_no_snapshot(box: BrowserSandboxAsync) -> None:
    await box.browser_navigate("file:///workspace/form.html")
    await box.browser_evaluate("() => password.focus()")
    async with viewing(await box.browser.url()) as person:
        await person.do("await", AGENT)
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("keys", "correct horse")
        async with asyncio.timeout(60):
            while "hidden: what a password field has" not in (await box.browser_snapshot()).text:
                pass
        await person.do("press", "Hand back")
        await person.do("await", AGENT)
        point = json.loads((await box.browser_evaluate(PLACE)).text)
        await person.do("press", "Take over")
        await person.do("await", PERSON)
        await person.do("keys", " battery")
        await person.do("point", f"{point[0] / 1280} {point[1] / 720}")
        await person.do("press", "Hand back")
        await person.do("await", AGENT)
    shown = await box.browser_evaluate("() => [password.type, password.value]")
    assert json.loads(shown.text) == ["text", "correct horse battery"]
    assert "battery" not in (await box.browser_snapshot()).text
    await box.browser_evaluate("() => { password.value += ' staple'; }")
    assert "staple" not in (await box.browser_snapshot()).text
    # A form may be sent by its URL.
    sent = "() => { location.search = new URLSearchParams({user: 'ada', password: password.value}); }"
    await box.browser_evaluate(sent)
    await box.browser_wait_for()
    for shown in (await box.browser_snapshot(), await box.browser_network_requests(), await box.browser_tab_list()):
        assert "user=ada&password=[hidden]" in shown.text


async def test_a_click_on_a_page_that_answers_late_is_made_once(box: BrowserSandboxAsync) -> None:
    shown = (await box.browser_navigate("file:///workspace/late.html")).text
    ref = shown.partition('"Pay"')[2].partition("[ref=")[2].partition("]")[0]
    assert "clicks: 1" in (await box.browser_click("Pay", ref)).text
    await box.browser_wait_for(time=1)
    assert "clicks: 1" in (await box.browser_snapshot()).text
