from agentscope.mcp import MCPClient
from agentscope.tool import BackendBase

class SandboxedWorkspaceBase:
    workspace_id: str
    gateway_port: int
    _backend: BackendBase | None
    @property
    def _gateway_venv(self) -> str: ...
    @property
    def _gateway_python(self) -> str: ...
    def __init__(
        self,
        *,
        workspace_id: str | None = None,
        default_mcps: list[MCPClient] | None = None,
        skill_paths: list[str] | None = None,
    ) -> None: ...
    async def initialize(self) -> None: ...
    async def close(self) -> None: ...
