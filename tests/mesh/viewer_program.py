"""A person who watches a desktop, a browser or a phone: a browser, told line by line what to do on the page at a URL.

The lines are a command and a text; each is answered by a line of JSON, after one that says that the page is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from playwright.sync_api import Page, sync_playwright

COLOURS = """() => {
  const canvas = document.querySelector('#screen canvas');
  if (!canvas || !canvas.width) return [0, 0, 0];
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set(new Uint32Array(data.buffer));
  return [canvas.width, canvas.height, found.size];
}"""

PASTE = """(element, text) => {
  const data = new DataTransfer();
  data.setData('text/plain', text);
  element.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
}"""


def see(page: Page, text: str) -> object:
    """Return the picture's width, height and number of colours; that takes a while, in which the page may draw."""
    del text
    page.wait_for_timeout(100)
    return page.evaluate(COLOURS)


def point(page: Page, text: str) -> None:
    """Click on a point of the picture, given as parts of its width and height."""
    at = [float(part) for part in text.split()]
    frame = page.locator("#screen canvas").bounding_box()
    assert frame is not None
    page.mouse.click(frame["x"] + at[0] * frame["width"], frame["y"] + at[1] * frame["height"])


def type_line(page: Page, text: str) -> None:
    """Type a text and Enter."""
    page.keyboard.type(text, delay=20)
    page.keyboard.press("Enter")


def answer_dialog(page: Page, text: str) -> None:
    """Accept the dialog of the page that is watched."""
    page.locator("#answer").fill(text)
    page.locator("#accept").click()


def wait(page: Page, text: str) -> None:
    """Wait until the page says who has control."""
    page.wait_for_function(
        "text => document.getElementById('status').textContent.includes(text)", arg=text, timeout=60_000
    )


def swipe(page: Page, text: str) -> None:
    """Move a finger over the picture from one point to another, given as parts of its width and height."""
    frame = page.locator("#screen canvas").bounding_box()
    assert frame is not None
    x0, y0, x1, y1 = (float(part) for part in text.split())
    finger: Any = page.context.new_cdp_session(page)

    def send(kind: str, at: float) -> None:
        x = frame["x"] + (x0 + (x1 - x0) * at) * frame["width"]
        y = frame["y"] + (y0 + (y1 - y0) * at) * frame["height"]
        points = [] if kind == "touchEnd" else [{"x": x, "y": y}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", 0)
    for step in range(1, 11):
        send("touchMove", step / 10)
    send("touchEnd", 1)


CONTRASTS = """() => {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(Number).map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const shown = [...document.querySelectorAll('header *, nav *, #dialog *')]
    .filter(each => each.checkVisibility() && each.tagName !== 'OPTION');
  return shown.map(each => {
    const both = [luminance(getComputedStyle(each).color), luminance(behind(each))];
    const [a, b] = both.sort((x, y) => y - x);
    return [each.id || each.tagName, (a + 0.05) / (b + 0.05), each.getBoundingClientRect().height, each.tagName];
  });
}"""

COUNT_CONNECTIONS = """() => {
  window.connections = 0;
  window.WebSocket = new Proxy(WebSocket, {
    construct(socket, all) {
      window.connections += 1;
      return new socket(...all);
    },
  });
}"""
CONNECTIONS = "() => window.connections"

SLOW_PICTURES = """() => {
  window.Image = class {
    set src(url) {
      const image = document.createElement('img');
      image.onload = () => setTimeout(() => this.onload(), 1500);
      image.src = url;
      [this.naturalWidth, this.naturalHeight] = [0, 0];
    }
  };
}"""
"""On a busy machine images take long; here nothing is drawn."""

COMMANDS: Mapping[str, Callable[[Page, str], object]] = {
    "colours": see,
    "press": lambda page, text: page.get_by_role("button", name=text, exact=True).click(),
    "type": type_line,
    "keys": lambda page, text: page.keyboard.type(text, delay=10),
    "click": lambda page, _: page.locator("#screen canvas").click(),
    "point": point,
    "paste": lambda page, text: page.locator("#keys").evaluate(PASTE, text),
    "choose": lambda page, text: page.get_by_label("Tabs").select_option(index=int(text)),
    "tabs": lambda page, _: page.locator("#tabs option").all_inner_texts(),
    "dialog": answer_dialog,
    "draft": lambda page, text: page.locator("#answer").fill(text),
    "alarmed": lambda page, text: page.locator("#problem", has_text=text).wait_for(timeout=60_000),
    "calm": lambda page, _: page.locator("#problem:empty").wait_for(state="attached", timeout=60_000),
    "says": lambda page, text: page.locator("#message", has_text=text).wait_for(timeout=60_000),
    "picture": lambda page, text: page.screenshot(path=text) and None,
    "shown": lambda page, text: page.get_by_role("button", name=text).is_visible(),
    "await": wait,
    "visible": lambda page, text: page.locator(text).is_visible(),
    "connections": lambda page, _: page.evaluate(CONNECTIONS),
    "swipe": swipe,
    "bar": lambda page, _: page.evaluate(CONTRASTS),
    "chord": lambda page, text: page.keyboard.press(text),
    "focused": lambda page, _: page.evaluate("() => document.activeElement.id || document.activeElement.tagName"),
    "answer": lambda page, _: page.locator("#answer").input_value(),
    "background": lambda page, _: page.evaluate("() => getComputedStyle(document.body).backgroundColor"),
}


def answer(page: Page, command: str, text: str) -> object:
    """Carry a command out and return its result, or else who has control."""
    result = COMMANDS[command](page, text)
    return page.inner_text("#status") if result is None or command == "choose" else result


def report(text: str) -> None:
    """Write what went wrong on the page where a failed test shows it."""
    sys.stderr.write(f"the page: {text}\n")


def main(program: str, url: str, device: str) -> None:
    """Open the page and obey; `device` has the options of the browser's context as JSON, and `slow_pictures`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        options = json.loads(device)
        slow = options.pop("slow_pictures", False)
        page = browser.new_context(**options).new_page()
        page.on("requestfailed", lambda request: report(f"{request.url}: {request.failure}"))
        page.on("pageerror", lambda error: report(str(error)))
        page.on("console", lambda message: report(message.text))
        page.add_init_script(f"({COUNT_CONNECTIONS})()")
        if slow:
            page.add_init_script(f"({SLOW_PICTURES})()")
        page.goto(url)
        sys.stdout.write(json.dumps(page.title()) + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            command, _, text = line.rstrip("\n").partition(" ")
            sys.stdout.write(json.dumps(answer(page, command, text)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
