"""The gateway's HTTP side: health for load balancers, and ports of sandboxes."""

from sandmeshd.runtime.http.listener import (
    EXPOSED_PORT,
    PAGE_HEADER,
    PORT_HEADER,
    Certificate,
    ExposedUrl,
    HttpAddresses,
    HttpListener,
    Pages,
    open_listener,
)

__all__ = [
    "EXPOSED_PORT",
    "PAGE_HEADER",
    "PORT_HEADER",
    "Certificate",
    "ExposedUrl",
    "HttpAddresses",
    "HttpListener",
    "Pages",
    "open_listener",
]
