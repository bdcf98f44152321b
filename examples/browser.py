"""A browser: a page of the sandbox's own is opened, its form is filled, and a person may watch. Saves a screenshot.

Where the machine has no Chromium, `sandmesh build browser` downloads Debian's first, which needs no root.
"""

import re
import subprocess
import sys
from pathlib import Path

from sandmesh import BrowserSandbox, SandmeshError
from sandmesh.errors import CapabilityMissing

PAGE = """<title>Tea</title><h1>Tea</h1><form>
<label>Name <input name="name"></label>
<label>Leaves <select name="leaves"><option>green</option><option>black</option></select></label>
<button>Order</button></form>
<p id="out"></p><script>out.textContent = location.search ? 'Ordered: ' + location.search : ''</script>"""


def find(snapshot: str, name: str) -> str:
    """Return the reference of the element with a name."""
    found = re.search(rf'"{name}".*?\[ref=(e\d+)\]', snapshot)
    if found is None:
        raise SystemExit(f"the page has no {name}:\n{snapshot}")
    return found[1]


def main(folder: Path) -> None:
    """Order tea in a browser, which is downloaded where the machine has none."""
    try:
        order(folder)
    except CapabilityMissing as error:
        if error.facts.get("needs") != "system":
            raise
        print("This machine has no Chromium: sandmesh build browser", flush=True)
        if subprocess.run([Path(sys.executable).with_name("sandmesh"), "build", "browser"], check=False).returncode:
            raise
        order(folder)


def order(folder: Path) -> None:
    """Open, fill, look; the picture is saved as browser.png in a folder."""
    with BrowserSandbox() as box:
        print("watch it here while it runs:", box.browser.url(readonly=True, ttl=600), flush=True)
        if sys.stdin.isatty() and sys.stdout.isatty():
            input("open it in a browser, then press Enter ")
        box.fs.write("index.html", PAGE)
        box.processes.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"]).wait_for_port(8000)
        page = box.browser_navigate("http://localhost:8000").text
        field, choice = find(page, "Name"), find(page, "Leaves")
        box.browser_fill_form(
            [
                {"name": "Name", "type": "textbox", "ref": field, "value": "Ada"},
                {"name": "Leaves", "type": "combobox", "ref": choice, "value": "black"},
            ]
        )
        ordered = box.browser_click("Order", find(page, "Order")).text
        print(next((line.strip() for line in ordered.splitlines() if "Ordered" in line), ordered))
        folder.mkdir(exist_ok=True)
        picture = folder / "browser.png"
        picture.write_bytes(box.browser_take_screenshot(raw=True).images[0])
        print("saved", picture, f"({picture.stat().st_size:,} bytes)")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output").absolute())
    except SandmeshError as error:
        sys.exit(f"{error.reason}: {error}")
