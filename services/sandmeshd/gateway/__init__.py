"""The only public door of a mesh: it carries calls to agents and forwards what is public."""

from sandmeshd.gateway.app import check_settings, open_gateway
from sandmeshd.gateway.http import HttpDoor
from sandmeshd.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "HttpDoor", "check_settings", "open_gateway"]
