"""What `sandmesh.integrations.agentscope` uses of the package."""

__version__: str
