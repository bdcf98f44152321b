"""The egress proxy that all drivers share: what sandboxes may reach is decided here, outside of them.

A sandbox has a loopback and nothing else. Programs inside find the proxy by HTTP_PROXY; the agent passes their bytes,
as they are, over a link that the driver dialled. Only here they are read: policy, resolution, check of the addresses,
and a connection to those very addresses.
"""

from sandmeshd.drivers.egress.grants import MODES, default_grant, describe, effective_grant
from sandmeshd.drivers.egress.settings import EgressSettings, PackageIndexes
from sandmeshd.drivers.egress.upstream.outlets import Outlet
from sandmeshd.drivers.egress.upstream.resolver import Resolver
from sandmeshd.drivers.egress.variables import egress_port, egress_variables

__all__ = [
    "MODES",
    "EgressSettings",
    "Outlet",
    "PackageIndexes",
    "Resolver",
    "default_grant",
    "describe",
    "effective_grant",
    "egress_port",
    "egress_variables",
]
