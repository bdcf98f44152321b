"""How this machine reaches others: its proxy, and the package indexes that pip and npm are configured with.

The places and their order are those of pip's and npm's own documentation; only what concerns sandboxes is read.
"""

from __future__ import annotations

import configparser
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path


def read_clients(environment: Mapping[str, str]) -> dict[str, object]:
    """Return settings of the mesh by name, without those that are not configured."""
    pip = _read_pip(environment)
    found: dict[str, object] = {
        "egress_proxy": _either(environment, "HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"),
        "egress_no_proxy": _either(environment, "NO_PROXY"),
        "image_proxy": _either(environment, "HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY"),
        "image_no_proxy": _either(environment, "NO_PROXY"),
        "image_credentials": _docker_login(environment),
        "pip_index_url": pip.get("index-url", ""),
        "pip_extra_index_urls": tuple(pip.get("extra-index-url", "").split()),
        "npm_registry": _read_npm(environment),
        "apt_urls": tuple(dict.fromkeys(read_apt(Path("/etc/apt")))),
        "docker_url": environment.get("DOCKER_HOST", ""),
        "docker_certificates": _docker_certificates(environment),
    }
    return {name: value for name, value in found.items() if value}


def _docker_certificates(environment: Mapping[str, str]) -> str:
    """Return the folder of Docker's client certificates where the client verifies the engine's."""
    folder = environment.get("DOCKER_CERT_PATH") or str(_home(environment) / ".docker")
    return folder if environment.get("DOCKER_TLS_VERIFY") else ""


def _docker_login(environment: Mapping[str, str]) -> str:
    """Return the file of `docker login`, or of `podman login`, where the environment names it."""
    folder = environment.get("DOCKER_CONFIG")
    return f"{folder}/config.json" if folder else environment.get("REGISTRY_AUTH_FILE", "")


def _either(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[one] for name in names for one in (name.lower(), name) if environment.get(one)), "")


def _read_pip(environment: Mapping[str, str]) -> dict[str, str]:
    """Return pip's options: the environment takes precedence over files, a later file over an earlier one."""
    options: dict[str, str] = {}
    for path in _pip_files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                options |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    for name in ("index-url", "extra-index-url"):
        value = environment.get(f"PIP_{name.upper().replace('-', '_')}")
        if value is not None:
            options[name] = value
    return options


def _pip_files(environment: Mapping[str, str]) -> Iterator[Path]:
    explicit = environment.get("PIP_CONFIG_FILE")
    if explicit == "/dev/null":
        return
    home = _home(environment)
    for folder in reversed(environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if explicit:
        yield Path(explicit)


def _read_npm(environment: Mapping[str, str]) -> str:
    configured = _either(environment, "NPM_CONFIG_REGISTRY")
    files = (environment.get("NPM_CONFIG_USERCONFIG") or _home(environment) / ".npmrc", "/etc/npmrc")
    return configured or next((found for path in files if (found := _npm_line(Path(path)))), "")


def _npm_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    for line in lines:
        name, found, value = line.partition("=")
        if found and name.strip() == "registry":
            return value.strip().strip("\"'")
    return ""


def read_apt(folder: Path) -> Iterator[str]:
    """Yield the archives of sources.list(5), in either format, that are reached over HTTP."""
    more = (path for path in (folder / "sources.list.d").glob("*") if path.suffix in (".list", ".sources"))
    for path in (folder / "sources.list", *sorted(more)):
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines:
            kind, _, rest = line.strip().partition(":" if path.suffix == ".sources" else " ")
            if kind in ("URIs", "deb"):
                yield from (word.rstrip("/") for word in rest.split() if word.startswith(("http://", "https://")))


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or "/")
