"""The machine's certificates, package indexes, mirrors and proxy, for builds. Nothing stays in the image.

Each is a secret of BuildKit, mounted while a step runs; the proxy is one of the arguments that it never records.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from sandmeshd.drivers.egress import EgressSettings

CODENAME = "bookworm"
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
ARCHIVE_KEY = "debian-archive-keyring"


def write_secrets(folder: Path, egress: EgressSettings) -> dict[str, Path]:
    """Write the secrets of builds as files into a private folder; return them by name."""
    texts = {"pip": _pip(egress), "apt": _apt(egress), "apt_sources": debian_sources(Path("/etc/apt"))}
    files: dict[str, Path] = {}
    for name, text in texts.items():
        if text:
            files[name] = folder / name
            files[name].write_text(text)
    bundle = next((Path(path) for path in BUNDLES if Path(path).exists()), None)
    return files if bundle is None else {**files, "ca": bundle}


def proxy_arguments(egress: EgressSettings) -> dict[str, str]:
    """Return the proxy as arguments of a build, by name."""
    if egress.proxy is None:
        return {}
    proxy = egress.proxy.get_secret_value()
    none = {"NO_PROXY": egress.no_proxy} if egress.no_proxy else {}
    return {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, **none}


def _pip(egress: EgressSettings) -> str:
    # A directory of this machine does not exist inside.
    extra = [url for url in egress.indexes.pip_extra if "://" in url and not url.startswith("file:")]
    lines = ["[global]"]
    if egress.indexes.pip and not egress.indexes.pip.startswith("file:"):
        lines.append(f"index-url = {egress.indexes.pip}")
    if extra:
        lines.append("extra-index-url = " + " ".join(extra))
    if any(Path(path).exists() for path in BUNDLES):
        lines.append("cert = /run/secrets/ca")
    return "\n".join(lines) + "\n"


def _apt(egress: EgressSettings) -> str:
    if egress.proxy is None:
        return ""
    proxy = egress.proxy.get_secret_value()
    return f'Acquire::http::Proxy "{proxy}";\nAcquire::https::Proxy "{proxy}";\n'


def debian_sources(folder: Path) -> str:
    """Return this machine's sources of Debian's packages as lines, if it runs the release of the images."""
    if platform.freedesktop_os_release().get("VERSION_CODENAME") != CODENAME:
        return ""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    return "".join(line + "\n" for path in files if path.is_file() for line in _lines(path))


def _lines(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8", "replace")
    if path.suffix != ".sources":
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["deb"] and any(word.startswith(CODENAME) for word in words) and "[" not in line:
                yield line
        return
    for block in text.split("\n\n"):
        yield from _block(block)


def _block(block: str) -> Iterator[str]:
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line and not line.startswith(("#", " ")))
    fields = {name.strip().lower(): value.split() for name, value in pairs}
    suites = [suite for suite in fields.get("suites", []) if suite.startswith(CODENAME)]
    signed = " ".join(fields.get("signed-by", [ARCHIVE_KEY]))
    if "deb" in fields.get("types", []) and ARCHIVE_KEY in signed and "no" not in fields.get("enabled", []):
        for uri in fields.get("uris", []):
            for suite in suites:
                yield " ".join(["deb", uri, suite, *fields.get("components", [])])
