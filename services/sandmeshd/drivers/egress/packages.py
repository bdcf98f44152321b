"""The preset `packages`: the hosts of the node's package indexes, and what tells the clients inside to use them."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

import structlog

from sandmesh.shared.hosts import NamedHost, plain_host
from sandmeshd.drivers.egress.settings import PackageIndexes

log = structlog.get_logger()

PYPI = "https://pypi.org/simple"
NPM = "https://registry.npmjs.org/"

DISTRIBUTIONS = (
    *("deb.debian.org", "security.debian.org", "snapshot.debian.org"),
    *("archive.ubuntu.com", "security.ubuntu.com", "ports.ubuntu.com", "dl-cdn.alpinelinux.org"),
)
"""The hosts of the packages of Debian, Ubuntu and Alpine: their packages are signed, so that plain HTTP does."""

_FILES = {"pypi.org": "files.pythonhosted.org"}
"""Where an index keeps its files, where that is another host."""

_PORTS = {"http": 80, "https": 443}


def package_hosts(indexes: PackageIndexes) -> tuple[NamedHost, ...]:
    """Return the hosts of all indexes that are reached over the network, with their ports."""
    found: dict[NamedHost, None] = {}
    for distribution in DISTRIBUTIONS:
        found |= dict.fromkeys(NamedHost(distribution, port) for port in _PORTS.values())
    for url in (indexes.pip or PYPI, *indexes.pip_extra, indexes.npm or NPM, *indexes.apt):
        parts = _remote(url)
        host = plain_host(parts.hostname or "") if parts else None
        if parts is None or host is None:
            continue
        port = parts.port or _PORTS[parts.scheme]
        found |= dict.fromkeys(NamedHost(name, port) for name in (host, _FILES.get(host, host)))
    return tuple(found)


def package_variables(indexes: PackageIndexes) -> dict[str, str]:
    """Return environment variables that make pip, uv, npm and yarn inside use the node's indexes, without passwords."""
    extra = [_shown(url) for url in indexes.pip_extra if _remote(url)]
    variables: dict[str, str] = {}
    if _remote(indexes.pip):
        variables |= {"PIP_INDEX_URL": _shown(indexes.pip), "UV_DEFAULT_INDEX": _shown(indexes.pip)}
    if extra:
        variables |= {"PIP_EXTRA_INDEX_URL": " ".join(extra), "UV_INDEX": " ".join(extra)}
    urls = [_shown(url) for url in (indexes.pip, *indexes.pip_extra) if _remote(url)]
    insecure = [urlsplit(url).netloc for url in urls if url.startswith("http:")]
    if insecure:
        variables["PIP_TRUSTED_HOST"] = " ".join(dict.fromkeys(insecure))
    if _remote(indexes.npm):
        # Yarn 1 and Yarn 2 and later have different names.
        names = ("NPM_CONFIG_REGISTRY", "YARN_REGISTRY", "YARN_NPM_REGISTRY_SERVER")
        variables |= dict.fromkeys(names, _shown(indexes.npm))
    return variables


def warn_of_directories(indexes: PackageIndexes) -> None:
    """Log the indexes that no sandbox sees: directories of the node stay its own."""
    for url in (indexes.pip, *indexes.pip_extra, indexes.npm):
        if url and _remote(url) is None:
            log.info("a package index is a directory of this node, which sandboxes do not see", index=url)


def _remote(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if valid else None


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
