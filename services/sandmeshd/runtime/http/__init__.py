"""The gateway's HTTP side: health for load balancers, and ports of sandboxes."""

from sandmeshd.runtime.http.listener import Certificate, HttpAddresses, HttpListener, Pages, open_listener

__all__ = ["Certificate", "HttpAddresses", "HttpListener", "Pages", "open_listener"]
