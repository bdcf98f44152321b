"""A desktop by E2B's own client: `sandmesh up --e2b --domain mesh.localhost`, and the template `desktop`."""

import io
import time
import urllib.error
import urllib.request

from e2b_desktop import Sandbox
from PIL import Image


def until(check, seconds: float = 30.0):
    """Return what a check finds, once it does."""
    end = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > end:
            raise TimeoutError(check)
        time.sleep(0.2)
    return found


def windows(desktop: Sandbox, application: str) -> list[str]:
    """Return an application's windows."""
    try:
        return [window for window in desktop.get_application_windows(application) if window]
    except Exception:  # xdotool finds none
        return []


desktop = Sandbox.create(resolution=(1280, 800), dpi=96, timeout=300)
assert desktop.get_screen_size() == (1280, 800)
assert Image.open(io.BytesIO(desktop.screenshot())).size == (1280, 800)
assert b"".join(desktop.screenshot(format="stream")).startswith(b"\x89PNG")

# The mouse.
desktop.move_mouse(300, 200)
assert desktop.get_cursor_position() == (300, 200)
# Each at another place: the client's xdotool waits 15 s for a pointer that is there already.
desktop.left_click(640, 400)
desktop.double_click(650, 400)
desktop.middle_click(660, 400)
desktop.right_click(670, 400)
assert desktop.get_cursor_position() == (670, 400)
desktop.press("esc")
desktop.scroll("up", 2)
desktop.scroll("down", 2)
desktop.mouse_press("left")
desktop.mouse_release("left")
desktop.drag((200, 300), (400, 500))
assert desktop.get_cursor_position() == (400, 500)
desktop.wait(100)

# A program, and the keyboard.
desktop.launch("xfce4-terminal")
window = until(lambda: windows(desktop, "xfce4-terminal"))[-1]
assert until(lambda: desktop.get_window_title(window))
until(desktop.get_current_window_id)
desktop.left_click(640, 400)
desktop.commands.run(f"xdotool windowactivate --sync {window}")
desktop.write("echo 'typed by a client' > typed")
desktop.press("enter")
until(lambda: desktop.files.exists("typed"))
assert until(lambda: desktop.files.read("typed")) == "typed by a client\n"
desktop.press(["ctrl", "shift", "t"])
desktop.files.write("page.txt", "opened")
desktop.open("page.txt")

# The stream: a page for people, and where it was asked for a password.
desktop.stream.start(require_auth=True)
url = desktop.stream.get_url(auth_key=desktop.stream.get_auth_key(), view_only=True)
with urllib.request.urlopen(url) as answer:  # noqa: S310 - the client makes it
    assert b"noVNC" in answer.read()
with urllib.request.urlopen(url.partition("/vnc.html")[0] + "/core/rfb.js") as answer:  # noqa: S310 - as above
    assert answer.headers["Content-Type"] == "text/javascript"
try:
    desktop.stream.start()
except RuntimeError:
    pass
else:
    raise AssertionError("a second stream was started")
desktop.stream.stop()
desktop.stream.start(window_id=window)
assert desktop.stream.get_url().endswith("/vnc.html?autoconnect=true&resize=scale")
assert desktop.kill()
print("every call answered")
