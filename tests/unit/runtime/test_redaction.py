"""What is marked (secret) in the protos, or looks like a token, is in no log."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from importlib import import_module

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

import sandmesh.api
from sandmesh.api.options.v1 import options_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmeshd.runtime.telemetry.redaction import HIDDEN, shown

LOGGING = """
import structlog
from sandmesh.api.token.v1 import token_pb2
from sandmeshd.runtime.telemetry.logs import configure_logging
configure_logging("INFO")
log = structlog.get_logger()
secret = "smesh_" + "a" * 16 + "_" + "hush" * 13
log.info("one", request=token_pb2.CheckTokenRequest(secret=secret), text=f"it was {secret}!", many=[{"k": secret}])
try:
    raise ValueError(secret)
except ValueError:
    log.exception("two")
"""


def secret_fields() -> Iterator[tuple[Descriptor, str]]:
    for module in pkgutil.walk_packages(sandmesh.api.__path__, "sandmesh.api."):
        if module.name.endswith("_pb2"):
            for message in import_module(module.name).DESCRIPTOR.message_types_by_name.values():
                for field in message.fields:
                    if field.GetOptions().Extensions[options_pb2.secret]:
                        yield message, field.name


@pytest.mark.parametrize(("message", "name"), list(secret_fields()), ids=lambda value: getattr(value, "name", value))
def test_a_marked_field_shows_that_it_was_set_and_not_what_it_is(message: Descriptor, name: str) -> None:
    made = GetMessageClass(message)()
    value = getattr(made, name)
    if isinstance(value, str | bytes):
        setattr(made, name, "hush" if isinstance(value, str) else b"hush")
    else:
        value["NAME"] = "hush"
    seen = str(shown(made))
    assert "hush" not in seen
    # Bytes are base64 in JSON.
    assert b64encode(b"hush").decode() not in seen
    assert (b64encode(HIDDEN.encode()).decode() if isinstance(value, bytes) else HIDDEN) in seen
    assert "hush" in str(made), "the message itself stays as it is"


def test_marked_fields_are_hidden_deep_inside() -> None:
    spec = sandbox_pb2.SandboxSpec(template="base", environment={"API_KEY": "hush"})
    sandbox = sandbox_pb2.Sandbox(sandbox_id="sb_one", spec=spec)
    session = session_pb2.Session(user_id="ada", sandboxes={"base": sandbox})
    request = session_pb2.ConnectSessionRequest(slots=[session_pb2.SlotSpec(spec=spec)])
    for message in (session, request):
        seen = str(shown(message))
        assert "hush" not in seen
        assert "API_KEY" in seen


def test_there_are_marked_fields() -> None:
    names = {f"{message.name}.{field}" for message, field in secret_fields()}
    assert {"CreateTokenResponse.secret", "CheckTokenRequest.secret", "ResolveSandboxResponse.agent_token"} <= names


def test_a_service_logs_no_secret_whatever_it_is_given() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True)
    assert "hush" not in done.stderr
    assert [line.count("smesh_aaaaaaaaaaaaaaaa_[secret]") for line in done.stderr.splitlines()] == [2, 1]
