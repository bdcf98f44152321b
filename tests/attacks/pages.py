"""A hostile page in a sandbox's browser: DevTools, the agent, screens, files and other protocols."""

from __future__ import annotations

import json
from typing import Any, Final

from sandmesh import BrowserSandboxAsync
from tests.attacks.tally import Tally
from tests.attacks.target import Target

_HOSTS: Final = ("127.0.0.1", "[::1]", "localhost", "0.0.0.0", "127.1", "[::ffff:127.0.0.1]")  # noqa: S104 - asked for
_PATHS: Final = ("json/version", "json/new?about:blank", "json/protocol", "")
_FILES: Final = (
    *("/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/proc/self/maps", "/run/agent/agent.sock", "/workspace"),
    *("/workspace/index.html", "/dev/shm", "/home/sandbox", "/proc/net/unix", "/opt/sandmesh/site"),
)
_SCHEMES: Final = (
    *("chrome://version", "chrome://settings", "devtools://devtools/bundled/inspector.html", "view-source:file:///etc"),
    *("ftp://127.0.0.1/", "chrome-extension://x/", "filesystem:http://localhost/", "about:config", "javascript:1"),
)
_FETCH: Final = """async () => {
  const seen = {};
  for (const url of %s) {
    try {
      if (url.startsWith('ws')) seen[url] = await new Promise(done => {
        const socket = new WebSocket(url);
        socket.onopen = () => done('open'); socket.onerror = () => done('');
      });
      else {
        const answer = await fetch(url, {signal: AbortSignal.timeout(3000)});
        seen[url] = answer.ok ? 'answer ' + (await answer.text()).slice(0, 80) : '';
      }
    } catch (error) { seen[url] = ''; }
    try {
      const frame = document.createElement('iframe');
      frame.src = url; document.body.append(frame);
      await new Promise(done => { frame.onload = frame.onerror = done; setTimeout(done, 300); });
      const inner = frame.contentDocument;
      const text = inner && inner.URL !== 'about:blank' && inner.body ? inner.body.innerText : '';
      seen[url] += text.slice(0, 80);
      frame.remove();
    } catch (error) {}
  }
  return seen;
}"""


async def load(target: Target, tally: Tally) -> None:
    """Open a page of a server on the loopback, and have it fetch and frame what it must not see."""
    secret = target.world.secrets["bob"]
    async with BrowserSandboxAsync(base_url=target.world.address, bearer_token=secret, timeout=120) as box:
        await box.fs.write("index.html", "<title>Hostile</title>")
        server = await box.processes.start("python3 -m http.server 8123 --bind 127.0.0.1")
        await server.wait_for_port(8123)
        await box.browser_navigate("http://localhost:8123/")
        ports = await _listening(box)
        urls = [f"http://{host}:{port}/{path}" for port in ports for host in _HOSTS for path in _PATHS]
        urls += [f"ws://{host}:{port}/devtools/browser/x" for port in ports for host in _HOSTS]
        urls += [f"http://localhost:{port}/" for port in (5900, 6080, 6000, 5901)]
        urls += [f"file://{path}" for path in _FILES] + list(_SCHEMES)
        for start in range(0, len(urls), 20):
            some = urls[start : start + 20]
            found: Any = (await box.browser_evaluate(_FETCH % json.dumps(some))).structured
            for url in some:
                seen = found["result"].get(url, "")
                tally.note(f"{url}: {seen}", held=not seen)


async def _listening(box: BrowserSandboxAsync) -> list[int]:
    tables = (await box.run_shell_command("cat /proc/net/tcp /proc/net/tcp6")).text
    rows = [line.split() for line in tables.splitlines()]
    found = {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}
    return sorted(found - {8123, 3128})
