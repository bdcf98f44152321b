"""A client of a mesh: its sandboxes, events, sessions, tokens, templates, snapshots, ports and health.

with Mesh() as mesh:
    for sandbox in mesh.sandboxes.list(template="base"):
        print(sandbox.sandbox_id, sandbox.state)
"""

from sandmesh.mesh.client import MeshAsync, find_mesh
from sandmesh.mesh.principal import PrincipalInfo
from sandmesh.mesh.records import (
    AuditEntry,
    Capacity,
    CreatedToken,
    Lease,
    LogChunk,
    MeshHealth,
    NodeHealth,
    PortInfo,
    Preparation,
    QuotaInfo,
    Record,
    SandboxEvent,
    SandboxInfo,
    SnapshotInfo,
    SnapshotList,
    SweepFinding,
    SweepReport,
    TemplateInfo,
    TemplateOnNode,
    TemplateRegistration,
    TokenInfo,
    Trouble,
)
from sandmesh.mesh.secrets import SecretChange, SecretInfo
from sandmesh.mesh.sync import Mesh
from sandmesh.mesh.usage import Usage, UsageReport

__all__ = [
    "AuditEntry",
    "Capacity",
    "CreatedToken",
    "Lease",
    "LogChunk",
    "Mesh",
    "MeshAsync",
    "MeshHealth",
    "NodeHealth",
    "PortInfo",
    "Preparation",
    "PrincipalInfo",
    "QuotaInfo",
    "Record",
    "SandboxEvent",
    "SandboxInfo",
    "SecretChange",
    "SecretInfo",
    "SnapshotInfo",
    "SnapshotList",
    "SweepFinding",
    "SweepReport",
    "TemplateInfo",
    "TemplateOnNode",
    "TemplateRegistration",
    "TokenInfo",
    "Trouble",
    "Usage",
    "UsageReport",
    "find_mesh",
]
