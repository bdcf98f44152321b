"""The gateway's HTTP side: health for load balancers, and ports of sandboxes."""

from sandmeshd.gateway.http.door import Certificate, HttpDoor, Pages, Wanted, open_door

__all__ = ["Certificate", "HttpDoor", "Pages", "Wanted", "open_door"]
