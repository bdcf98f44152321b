"""What pages do to a browser's tools: frames, dialogs, files, tabs, keys, noise, and a script without end."""

from __future__ import annotations

import json

import pytest

from sandmesh import BrowserSandboxAsync
from sandmesh.errors import InvalidArgument
from tests.mesh.browser.test_browser import SITE, bad, box, good, opened, pytestmark, ref

__all__ = ["box", "pytestmark"]


async def test_what_a_frame_holds_is_in_the_snapshot_and_can_be_clicked(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/frame")
    assert "Outside" in page
    assert 'button "Pressed"' in good(await box.browser_click("Press", ref(page, 'button "Press"')))


async def test_a_dialog_holds_up_the_page_until_it_is_answered(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/dialog")
    ask = ref(page, 'button "Ask"')
    assert "Your name?" in good(await box.browser_click("Ask", ask))
    assert "dialog" in bad(await box.browser_click("Ask", ask))
    assert "Ada" in good(await box.browser_handle_dialog(accept=True, prompt_text="Ada"))
    good(await box.browser_click("Ask", ref(good(await box.browser_snapshot()), 'button "Ask"')))
    assert "nobody" in good(await box.browser_handle_dialog(accept=False))
    assert "No dialog is open" in bad(await box.browser_handle_dialog(accept=True))


async def test_files_are_uploaded_from_the_workspace_alone(box: BrowserSandboxAsync) -> None:
    await box.fs.write("letter.txt", "dear page")
    assert "No file chooser is open" in bad(await box.browser_file_upload(["letter.txt"]))
    page = await opened(box, "/upload")
    good(await box.browser_click("File", ref(page, 'button "File"')))
    assert "outside of the workspace" in bad(await box.browser_file_upload(["../../etc/passwd"]))
    assert "is not a file" in bad(await box.browser_file_upload(["nothing.txt"]))
    assert "dear page" in good(await box.browser_file_upload(["letter.txt"]))


async def test_a_download_lands_in_the_workspace_and_is_named(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/")
    told = good(await box.browser_click("Table", ref(page, 'link "Table"')))
    assert "downloads/file.csv" in told
    assert await box.fs.read("downloads/file.csv") == "a,b\n1,2\n"
    told = good(await box.browser_click("Table", ref(good(await box.browser_snapshot()), 'link "Table"')))
    assert "downloads/file-1.csv" in told
    assert {one.name for one in await box.fs.list("downloads")} == {"file.csv", "file-1.csv"}


async def test_tabs_are_opened_listed_selected_and_closed(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    page = good(await box.browser_tab_new(f"{SITE}/second"))
    assert "- Page Title: Second" in page
    listed = good(await box.browser_tab_list())
    assert f"- 1: {SITE}/\n- 2: (current) {SITE}/second" in listed
    assert "- Page Title: Shop" in good(await box.browser_tab_select(1))
    good(await box.browser_tab_close(2))
    assert "second" not in good(await box.browser_tab_list())
    assert "2" in bad(await box.browser_tab_select(2))
    page = good(await box.browser_snapshot())
    assert "Second" in good(await box.browser_click("Elsewhere", ref(page, 'link "Elsewhere"')))
    good(await box.browser_tab_close(2))


async def test_keys_slow_typing_hovering_and_dragging_reach_the_page(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/keys")
    page = good(await box.browser_type("Field", ref(page, 'textbox "Field"'), "ab", slowly=True))
    assert "a b" in page
    assert "Escape" in good(await box.browser_press_key("Escape"))
    assert "Keys are named like" in bad(await box.browser_press_key("NoSuchKey"))
    page = good(await box.browser_snapshot())
    assert "hovered" in good(await box.browser_hover("To", ref(page, 'button "To"')))
    page = good(await box.browser_snapshot())
    source, target = ref(page, 'button "From"'), ref(page, 'button "To"')
    assert "moved" in good(await box.browser_drag("From", source, "To", target))


async def test_several_fields_are_filled_at_once(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/")
    name, gift, size = (ref(page, one) for one in ('textbox "Name"', 'checkbox "Gift"', 'combobox "Size"'))
    good(
        await box.browser_fill_form(
            [
                {"name": "Name", "type": "textbox", "ref": name, "value": "Grace"},
                {"name": "Gift", "type": "checkbox", "ref": gift, "value": "true"},
                {"name": "Size", "type": "combobox", "ref": size, "value": "large"},
            ]
        )
    )
    page = good(await box.browser_snapshot())
    told = good(await box.browser_click("Order", ref(page, 'button "Order"')))
    assert "name=Grace&gift=yes&size=large" in told


async def test_what_a_page_wrote_requested_and_computes_can_be_read(box: BrowserSandboxAsync) -> None:
    await opened(box, "/noise")
    assert "hello from the page" in good(await box.browser_console_messages())
    requests = good(await box.browser_network_requests())
    assert "/missing" in requests
    assert "404" in requests
    assert '"Noise"' in good(await box.browser_evaluate("() => document.title"))
    assert "boom" in bad(await box.browser_evaluate("() => { throw new Error('boom') }"))
    good(await box.browser_resize(800, 600))
    assert "[800,600]" in good(await box.browser_evaluate("() => [innerWidth, innerHeight]")).replace(" ", "").replace(
        "\n", ""
    )
    assert "page.pdf" in good(await box.browser_pdf_save())
    assert (await box.fs.read("page.pdf", "bytes")).startswith(b"%PDF")


async def test_cookies_and_storage_are_saved_and_come_back_in_a_new_browser(box: BrowserSandboxAsync) -> None:
    await opened(box, "/noise")
    good(await box.browser_storage_state("state.json"))
    saved = json.loads(await box.fs.read("state.json"))
    assert any(cookie["name"] == "login" for cookie in saved["cookies"])
    good(await box.browser_evaluate("() => { document.cookie = 'login=; max-age=0'; localStorage.clear() }"))
    good(await box.browser_close())
    good(await box.browser_set_storage_state("state.json"))
    await opened(box, "/second")
    assert "login=ada" in good(await box.browser_evaluate("() => document.cookie"))
    assert "two apples" in good(await box.browser_evaluate("() => localStorage.getItem('cart')"))
    assert "no-such.json" in bad(await box.browser_set_storage_state("no-such.json"))


async def test_a_text_is_waited_for_also_its_end(box: BrowserSandboxAsync) -> None:
    await opened(box, "/second")
    assert "It came late" in good(await box.browser_wait_for(text="It came late"))
    good(await box.browser_wait_for(time=0.01))
    good(await box.browser_wait_for(text_gone="never there"))
    good(await box.browser_wait_for())


@pytest.mark.timeout(180)
async def test_a_page_whose_script_never_ends_is_named_and_the_browser_goes_on(box: BrowserSandboxAsync) -> None:
    page = await opened(box, "/hang")
    assert "The page does not answer" in bad(await box.browser_click("Hang", ref(page, 'button "Hang"')))
    assert "The page does not answer" in bad(await box.browser_snapshot())
    good(await box.browser_close())
    assert "- Page Title: Shop" in await opened(box, "/")


async def test_a_tab_that_is_gone_and_a_size_of_nothing_are_refused(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    good(await box.browser_tab_new(f"{SITE}/second"))
    good(await box.browser_tab_close(2))
    for gone in (await box.browser_tab_select(2), await box.browser_tab_close(2)):
        assert "There is no tab 2" in bad(gone)
        assert f"- 1: (current) {SITE}/" in bad(gone)
    for width, height, wrong in ((0, 600, "width"), (-5, 600, "width"), (800, 0, "height"), (800, 100_000, "height")):
        with pytest.raises(InvalidArgument, match=wrong):
            await box.browser_resize(width, height)


GLYPHS = """() => {
  const pen = Object.assign(document.createElement('canvas'), {width: 40, height: 40}).getContext('2d');
  pen.font = '24px sans-serif';
  const drawn = text => {
    pen.clearRect(0, 0, 40, 40);
    pen.fillText(text, 4, 28);
    return pen.getImageData(0, 0, 40, 40).data;
  };
  const coloured = data => data.some((each, at) => at %% 4 === 0 && (each !== data[at + 1] || each !== data[at + 2]));
  return %s.map(text => [drawn(text).join(), coloured(drawn(text))]);
}"""
CANVAS = """<title>Board</title><body style="margin:0">
<canvas id=board role=button aria-label=Board width=200 height=100></canvas><script>
  const pen = board.getContext('2d'); pen.fillStyle = '#00f'; pen.fillRect(0, 0, 200, 100);
  board.onclick = press => { pen.fillStyle = '#f00'; pen.fillRect(press.offsetX - 20, press.offsetY - 20, 40, 40) };
</script>"""
COLOURS = """from PIL import Image
image = Image.open('board.png').convert('RGB')
print(image.size, image.getpixel((10, 10)), image.getpixel((100, 50)))"""


async def test_what_a_page_draws_on_a_canvas_is_clicked_and_seen(box: BrowserSandboxAsync) -> None:
    await box.fs.write("board.html", CANVAS)
    board = ref(good(await box.browser_navigate("file:///workspace/board.html")), 'button "Board"')
    for middle in ("(0, 0, 255)", "(255, 0, 0)"):
        good(await box.browser_take_screenshot(filename="board.png", ref=board, element="Board"))
        assert good(await box.run_ipython_cell(COLOURS)).strip() == f"(200, 100) (0, 0, 255) {middle}"
        board = ref(good(await box.browser_click("Board", board)), 'button "Board"')


async def test_chinese_japanese_korean_and_emoji_are_drawn(box: BrowserSandboxAsync) -> None:
    await opened(box, "/")
    # The last is what a character looks like that no font has.
    glyphs = (await box.browser_evaluate(GLYPHS % json.dumps(["你", "好", "ひ", "한", "🚀", "\U00050000"]))).structured
    assert glyphs is not None
    shapes = {shape for shape, _ in glyphs["result"]}
    assert len(shapes) == 6
    assert [coloured for _, coloured in glyphs["result"]] == [False, False, False, False, True, False]


HUGE = """<title>Huge</title><body style="margin:0"><button style="width:5000px;height:5000px">Huge</button>"""
TALL = """<title>Tall</title><body style="margin:0"><button style="width:100px;height:15000px">Tall</button>"""


async def test_a_screenshot_larger_than_64_mib_is_refused_and_nothing_is_saved(box: BrowserSandboxAsync) -> None:
    await box.fs.write("huge.html", HUGE)
    page = good(await box.browser_navigate("file:///workspace/huge.html"))
    button = ref(page, 'button "Huge"')
    for taken in (
        box.browser_take_screenshot(filename="huge.png", full_page=True),
        box.browser_take_screenshot(filename="huge.png", ref=button, element="Huge"),
    ):
        refused = bad(await taken)
        assert "would have 5000 x 5000 pixels, and one may have 64 MiB: pass a ref" in refused
    assert not await box.fs.exists("huge.png")
    assert (await box.browser_take_screenshot()).images
    await box.fs.write("tall.html", TALL)
    good(await box.browser_navigate("file:///workspace/tall.html"))
    good(await box.browser_take_screenshot(filename="tall.png", full_page=True))
    assert int.from_bytes((await box.fs.read("tall.png", "bytes"))[20:24], "big") == 15000
