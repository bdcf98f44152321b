"""Types of settings that are more than a text or a number, and the bounds that every setting has.

What does not fit is a ValueError: pydantic's message then begins with the setting's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, SecretStr
from pydantic.fields import FieldInfo

LARGEST_NUMBER = 2**53
"""The largest number of a setting: Redis and JSON cannot represent all larger ones."""

MOST_SECONDS = 1_000_000_000
"""The longest duration, about 31 years: an expiry must be a date."""

_HIGHEST_PORT = 65535
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_STORES = ("redis", "rediss", "unix")


def check_listen_address(address: str) -> str:
    """Return an address to listen at if it is one."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"{address!r} is not HOST:PORT, like 127.0.0.1:8570 or [::1]:8570")
    if not (port.isascii() and port.isdigit()) or int(port) > _HIGHEST_PORT:
        raise ValueError(f"the port of {address!r} is not a number from 0 to {_HIGHEST_PORT}")
    return address


def check_service_address(address: str) -> str:
    """Return an address of gRPC to listen at if it is one: HOST:PORT, or a unix socket's as unix:///PATH."""
    is_socket = address.startswith("unix:///") and len(address) > len("unix:///")
    return address if is_socket else check_listen_address(address)


def check_web_url(url: str) -> str:
    """Return an http:// or https:// URL, or an empty text."""
    if url and not _has_host(url, ("http", "https")):
        raise ValueError(f"{url!r} is not a URL like https://HOST:PORT")
    return url


def check_index_url(url: str) -> str:
    """Return where packages are found: a URL of a package index, a directory, or an empty text."""
    is_path = url.startswith(("/", "file:", "./", "~"))
    return url if is_path else check_web_url(url)


def check_store_url(url: SecretStr) -> SecretStr:
    """Return the URL of a Redis or Valkey server; its text may be a secret and is not repeated."""
    text = url.get_secret_value()
    if not _has_host(text, _STORES):
        raise ValueError("it is not redis://HOST:PORT, rediss://HOST:PORT or unix:///PATH")
    return url


def check_proxy(url: SecretStr | None) -> SecretStr | None:
    """Return the URL of a proxy, or None where it is empty."""
    text = "" if url is None else url.get_secret_value()
    if text and not _has_host(text, ("http", "https")):
        raise ValueError("it is not http://[USER:PASSWORD@]HOST:PORT")
    return url if text else None


def check_port_range(ports: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the first and last of some ports."""
    if ports is not None and not 1 <= ports[0] <= ports[1] <= _HIGHEST_PORT:
        raise ValueError(f"the ports must be [FIRST, LAST], from 1 to {_HIGHEST_PORT}, in order")
    return ports


ListenAddress = Annotated[str, AfterValidator(check_listen_address)]
ServiceAddress = Annotated[str, AfterValidator(check_service_address)]
WebUrl = Annotated[str, AfterValidator(check_web_url)]
IndexUrl = Annotated[str, AfterValidator(check_index_url)]
StoreUrl = Annotated[SecretStr, AfterValidator(check_store_url)]
PortRange = Annotated[tuple[int, int] | None, AfterValidator(check_port_range)]


def check_text(value: object, field: FieldInfo) -> None:
    """Refuse texts that cannot be meant: control characters, and an empty path (the working directory)."""
    if field.exclude or _is_nested(field.annotation):
        # Their own classes check what is in them.
        return
    for text in _texts(value):
        if _CONTROL.search(text):
            raise ValueError("it must not have control characters")
        if not text.strip() and _is_path(field.annotation):
            raise ValueError("it must not be empty: leave it out for its default")


def check_number(value: object, name: str) -> None:
    """Refuse numbers that nothing can be measured by."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    most = MOST_SECONDS if isinstance(value, float) or name.endswith("_seconds") else LARGEST_NUMBER
    if abs(value) > most:
        raise ValueError(f"it must be at most {most}")


def _has_host(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    is_path = parts.scheme == "unix"
    return parts.scheme in schemes and bool(parts.path if is_path else parts.hostname) and " " not in url


def _texts(value: object) -> list[str]:
    if isinstance(value, SecretStr):
        return [value.get_secret_value()]
    if isinstance(value, str | Path):
        return [str(value)]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for one in pair for text in _texts(one)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [text for one in value for text in _texts(one)] if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _is_nested(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _is_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_is_path, getattr(annotation, "__args__", ())))
