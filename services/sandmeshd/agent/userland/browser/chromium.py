"""The browser's program, its arguments and its profile."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from sandmeshd.agent.userland.browser.answer import BrowserFailure

_PROGRAMS: Final = (
    # Without the windows and services of a desktop's browser, so with a third less memory and a quicker start.
    "/usr/lib/chromium/chromium-headless-shell",
    # Debian's own wrapper reads files of /etc that sandboxes do not have.
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
    "/usr/bin/chromium-browser",
    "/usr/bin/chromium",
)
_ARGUMENTS: Final = (
    # Each sandbox is one already, and its system call filter allows no namespaces inside.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--password-store=basic",
    "--hide-crash-restore-bubble",
    "--disable-background-networking",
    "--disable-component-update",
    "--disk-cache-size=33554432",
    # Port 0: Chromium takes a free one of the sandbox's loopback and writes it to its profile.
    "--remote-debugging-port=0",
)
_PORT_FILE: Final = "DevToolsActivePort"
_COOKIES: Final = "session-cookies.json"
_CACHES: Final = (
    *("Cache", "Code Cache", "GPUCache", "ShaderCache", "GrShaderCache", "GraphiteDawnCache", "DawnGraphiteCache"),
    *("DawnWebGPUCache", "component_crx_cache", "BrowserMetrics", "Safe Browsing"),
)


def find_program() -> str:
    """Return the path of Chromium.

    Raises:
        BrowserFailure: There is none.
    """
    for path in _PROGRAMS:
        if os.access(path, os.X_OK):
            return path
    raise BrowserFailure(
        "There is no Chromium in this sandbox. Where sandboxes see the machine's own programs, install it there: "
        "apt-get install --no-install-recommends chromium-headless-shell"
    )


def proxy_url() -> str:
    """Return the URL of the sandbox's proxy; "" where it has none."""
    return os.environ.get("HTTPS_PROXY") or os.environ.get("HTTP_PROXY") or os.environ.get("http_proxy") or ""


def arguments() -> list[str]:
    """Return Chromium's arguments. Its requests go through the sandbox's proxy, but those to its own loopback."""
    proxy = proxy_url()
    return [*_ARGUMENTS, *([f"--proxy-server={proxy}"] if proxy else [])]


def profile_directory() -> Path:
    """Return the directory of cookies and storage: it stays when the browser ends, and goes with the sandbox."""
    return Path(os.environ.get("HOME", "/tmp"), ".cache", "sandmesh-browser")  # noqa: S108 - inside


def debugging_address(profile: Path) -> tuple[int, str]:
    """Return the port and the path at which the running browser speaks the DevTools protocol.

    Raises:
        BrowserFailure: The browser did not write them.
    """
    try:
        port, path = (profile / _PORT_FILE).read_text().split()
        return int(port), path
    except (OSError, ValueError):
        raise BrowserFailure(
            "The browser has not opened its debugging port: call browser_close and try again."
        ) from None


def prepare_profile(profile: Path) -> None:
    """Create the profile where there is none, and end what an earlier browser has left running with it."""
    profile.mkdir(parents=True, exist_ok=True)
    for pid in _users(profile):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for path in (_PORT_FILE, "SingletonLock", "SingletonSocket", "SingletonCookie"):
        (profile / path).unlink(missing_ok=True)
    shutil.rmtree(profile / "Crashpad", ignore_errors=True)


def keep_cookies(profile: Path, cookies: list[dict[str, Any]]) -> None:
    """Keep the cookies of the session, which Chromium forgets when it ends: a login is often one."""
    path = profile / _COOKIES
    path.write_text(json.dumps([cookie for cookie in cookies if cookie.get("expires", -1) < 0]))
    path.chmod(0o600)


def take_cookies(profile: Path) -> list[dict[str, Any]]:
    """Return the cookies that were kept, once; none where what is there is no such list."""
    path = profile / _COOKIES
    try:
        found: object = json.loads(path.read_text())
        path.unlink()
    except (OSError, ValueError):
        return []
    return cast("list[dict[str, Any]]", found) if isinstance(found, list) else []


def drop_caches(profile: Path) -> None:
    """Remove what Chromium recreates by itself."""
    for folder in (profile, profile / "Default"):
        for name in _CACHES:
            shutil.rmtree(folder / name, ignore_errors=True)


def _users(profile: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and f"--user-data-dir={profile}".encode() in (entry / "cmdline").read_bytes():
                yield int(entry.name)
