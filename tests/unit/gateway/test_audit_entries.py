"""What an entry of the audit says of an RPC."""

from __future__ import annotations

from sandmesh.api.audit.v1 import audit_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.api.token.v1 import token_pb2
from sandmeshd.gateway.audit.entries import describe


def test_values_that_there_are_not_do_not_keep_entries_from_the_audit() -> None:
    unknown: int = 9999
    grant = sandbox_pb2.NetworkGrant(hosts=["example.org"])
    grant.mode = unknown  # type: ignore[assignment]  # any client can send it
    slot = session_pb2.SlotSpec(spec=sandbox_pb2.SandboxSpec(template="base", network=grant))
    creation = token_pb2.CreateTokenRequest()
    creation.scope = unknown  # type: ignore[assignment]  # as above
    entry = audit_pb2.AuditEntry()
    describe(entry, session_pb2.ConnectSessionRequest(slots=[slot]), session_pb2.ConnectSessionResponse())
    describe(entry, creation, token_pb2.CreateTokenResponse())
    assert entry.details["network"] == "9999 example.org"
    assert entry.details["scope"] == "9999"
