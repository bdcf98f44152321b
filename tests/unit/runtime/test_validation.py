"""Required fields, named by their path."""

from __future__ import annotations

import pytest

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import InvalidArgument
from sandmeshd.runtime.rpc.validation import require


def test_a_request_with_all_it_must_have_passes() -> None:
    spec = sandbox_pb2.SandboxSpec(template="base")
    require(sandbox_pb2.ClaimSandboxRequest(spec=spec, session_key="s"))
    require(sandbox_pb2.ListSandboxesRequest(labels={"a": "b"}))
    require(session_pb2.Session(sandboxes={"s": sandbox_pb2.Sandbox(spec=spec)}))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (sandbox_pb2.GetSandboxRequest(), "sandbox_id"),
        (sandbox_pb2.RenewLeaseRequest(sandbox_id="sb"), "fencing_token"),
        (sandbox_pb2.ClaimSandboxRequest(session_key="s"), "spec"),
        (sandbox_pb2.ClaimSandboxRequest(session_key="s", spec=sandbox_pb2.SandboxSpec()), "spec.template"),
        (session_pb2.ConnectSessionRequest(slots=[session_pb2.SlotSpec()]), "slots[0].spec"),
        (
            session_pb2.Session(sandboxes={"x": sandbox_pb2.Sandbox(spec=sandbox_pb2.SandboxSpec())}),
            "sandboxes['x'].spec.template",
        ),
    ],
)
def test_a_missing_field_is_named_by_its_path(message: sandbox_pb2.GetSandboxRequest, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        require(message)
    assert caught.value.facts == {"field": field}
