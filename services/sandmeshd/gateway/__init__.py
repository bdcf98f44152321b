"""The only public entry point of a mesh: it carries calls to agents and forwards what is public."""

from sandmeshd.gateway.app import check_settings, open_gateway
from sandmeshd.gateway.door.addresses import token_required
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.http import HttpListener

__all__ = ["GatewaySettings", "HttpListener", "check_settings", "open_gateway", "token_required"]
