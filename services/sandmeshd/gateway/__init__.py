"""The only public door of a mesh: it carries calls to agents and forwards what is public."""

from sandmeshd.gateway.app import check_settings, open_gateway
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.http import HttpDoor

__all__ = ["GatewaySettings", "HttpDoor", "check_settings", "open_gateway"]
