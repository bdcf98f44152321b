from pydantic import BaseModel

class EnvironmentCapabilities(BaseModel):
    disable_internet: bool = False
    network_allowlist: bool = False
    network_allowlist_hostnames: bool = False
    network_allowlist_wildcard_hostnames: bool = False
    network_allowlist_ipv4_addresses: bool = False

class EnvironmentResourceCapabilities(BaseModel):
    cpu_limit: bool = False
    memory_limit: bool = False
    fractional_cpus: bool = False
