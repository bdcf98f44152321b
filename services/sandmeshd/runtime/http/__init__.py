"""The gateway's HTTP side: health for load balancers, and ports of sandboxes."""

from sandmeshd.runtime.http.listener import (
    PORT_TOKEN,
    Certificate,
    HttpAddresses,
    HttpListener,
    Pages,
    open_listener,
)

__all__ = ["PORT_TOKEN", "Certificate", "HttpAddresses", "HttpListener", "Pages", "open_listener"]
