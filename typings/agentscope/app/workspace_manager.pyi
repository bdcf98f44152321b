from enum import StrEnum

class IsolationPolicy(StrEnum):
    PER_AGENT = "per_agent"

class WorkspaceManagerBase:
    def __init__(self, *, isolation: IsolationPolicy = ...) -> None: ...
    async def assign_workspace_id(self, *, user_id: str, agent_id: str, session_id: str) -> str: ...
