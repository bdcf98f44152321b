"""The gateway's HTTP side: health for load balancers, and ports of sandboxes."""

from sandmeshd.runtime.http.listener import Certificate, HttpDoor, Pages, Wanted, open_door

__all__ = ["Certificate", "HttpDoor", "Pages", "Wanted", "open_door"]
