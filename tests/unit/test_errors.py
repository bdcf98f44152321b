"""Every error arrives as the class it left as, with all its fields."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from sandmesh import errors
from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.errors import SandmeshError
from sandmesh.shared.wire_errors import from_rpc_error, translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server

SERVICE = session_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name
REASONS = [value.name.removeprefix("ERROR_REASON_") for value in errors_pb2.ErrorReason.DESCRIPTOR.values[1:]]
Context = grpc.aio.ServicerContext[session_pb2.GetSessionRequest, session_pb2.GetSessionResponse]


def example(reason: str) -> SandmeshError:
    facts = {"known": "a, b", "odd": 'naïve\n"quoted"'}
    return errors.CLASSES[reason]("what happened, and what to do: naïve ✓", facts, changed=True, retry_after=1.5)


def fields(error: SandmeshError) -> tuple[object, ...]:
    return type(error), error.message, error.facts, error.changed, error.retry_after, str(error)


async def fail(request: session_pb2.GetSessionRequest, _: Context) -> session_pb2.GetSessionResponse:
    """Answer with the error that the request names."""
    if request.session_id == "a defect":
        raise ZeroDivisionError("the text of a defect")
    if request.session_id == "late":
        await asyncio.sleep(60)
    raise example(request.session_id)


def register(server: grpc.aio.Server) -> None:
    handler = grpc.unary_unary_rpc_method_handler(
        fail, session_pb2.GetSessionRequest.FromString, session_pb2.GetSessionResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"GetSession": handler}),))


@asynccontextmanager
async def failing_service() -> AsyncGenerator[session_pb2_grpc.SessionServiceAsyncStub]:
    async with (
        open_server(["127.0.0.1:0"], [ServiceRegistration(SERVICE, register)]) as listening,
        open_channel(listening.addresses[0]) as channel,
    ):
        yield session_pb2_grpc.SessionServiceStub(channel)


async def ask(stub: session_pb2_grpc.SessionServiceAsyncStub, session_id: str, timeout: float | None = None) -> None:
    with translated():
        await stub.GetSession(session_pb2.GetSessionRequest(user_id="u", session_id=session_id), timeout=timeout)


async def test_of_thousands_of_requests_at_once_none_is_dropped() -> None:
    async with failing_service() as stub:
        found = await asyncio.gather(*(ask(stub, REASONS[0]) for _ in range(4_000)), return_exceptions=True)
    assert Counter(map(type, found)) == {errors.CLASSES[REASONS[0]]: 4_000}


def test_a_request_that_nobody_cancelled_and_that_was_dropped_may_be_sent_again() -> None:
    found = from_rpc_error(grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, grpc.aio.Metadata(), grpc.aio.Metadata()))
    assert isinstance(found, errors.MeshUnavailable)
    assert (found.changed, found.retryable) == (True, True)
    assert "dropped the request" in found.message


def test_every_reason_has_a_class_and_every_class_a_reason() -> None:
    assert sorted(errors.CLASSES) == sorted(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_an_error_survives_a_stream(reason: str) -> None:
    sent = example(reason)
    detail = errors_pb2.ErrorDetail.FromString(errors.to_detail(sent).SerializeToString())
    assert detail.retryable == sent.retryable
    assert fields(errors.from_detail(detail)) == fields(sent)


@pytest.mark.parametrize("reason", REASONS)
def test_an_error_survives_pickling(reason: str) -> None:
    assert fields(pickle.loads(pickle.dumps(example(reason)))) == fields(example(reason))  # noqa: S301 - our own bytes


async def test_every_error_survives_a_real_rpc() -> None:
    async with failing_service() as stub:
        for reason in REASONS:
            with pytest.raises(SandmeshError) as caught:
                await ask(stub, reason)
            assert fields(caught.value) == fields(example(reason))


async def test_the_text_of_a_defect_does_not_leave_the_service() -> None:
    async with failing_service() as stub:
        with pytest.raises(errors.InternalError) as caught:
            await ask(stub, "a defect")
    assert caught.value.facts["error_id"] in caught.value.message
    assert "the text" not in caught.value.message


async def test_a_missing_field_is_named_before_the_service_is_asked() -> None:
    async with failing_service() as stub:
        with pytest.raises(errors.InvalidArgument, match="session_id"):
            await ask(stub, "")


async def test_a_method_that_nobody_serves_is_named_as_such() -> None:
    async with failing_service() as stub:
        with pytest.raises(errors.MethodNotFound), translated():
            await stub.ListSessions(session_pb2.ListSessionsRequest(user_id="u"))


async def test_an_address_where_nothing_listens_is_an_unavailable_mesh() -> None:
    async with open_server(["127.0.0.1:0"], []) as listening:
        address = listening.addresses[0]
    async with open_channel(address) as channel:
        with pytest.raises(errors.MeshUnavailable) as caught:
            await ask(session_pb2_grpc.SessionServiceStub(channel), "x")
    assert not caught.value.changed


async def test_a_request_whose_answer_is_lost_may_have_changed_something() -> None:
    async with failing_service() as stub:
        with pytest.raises(errors.DeadlineExceeded) as late:
            await ask(stub, "late", timeout=0.05)
        with pytest.raises(errors.InternalError) as defect:
            await ask(stub, "a defect")
        with pytest.raises(errors.MethodNotFound) as refused, translated():
            await stub.ListSessions(session_pb2.ListSessionsRequest(user_id="u"))
    assert [caught.value.changed for caught in (late, defect, refused)] == [True, True, False]


def test_of_what_was_too_large_it_may_have_been_the_answer() -> None:
    empty = grpc.aio.Metadata()
    failed = grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, empty, empty, "Received message larger than max")
    assert from_rpc_error(failed).changed


@pytest.mark.parametrize(
    ("details", "changed"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: unix:/s: No such file or directory", False),
        ("errors resolving nohost.invalid:1: [field:hostname lookup error:Domain name not found]", False),
        ("Socket closed", True),
    ],
)
def test_what_was_never_sent_has_changed_nothing(details: str, changed: bool) -> None:
    empty = grpc.aio.Metadata()
    failed = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, details)
    assert from_rpc_error(failed).changed is changed


async def test_a_connection_that_breaks_under_a_request_may_have_changed_something(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A preface and settings, as HTTP/2 begins; then nothing once the request is here.
        writer.write(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        while b"hang up now" not in await reader.read(1 << 16):
            continue
        writer.transport.abort()

    server = await asyncio.start_unix_server(hang_up, tmp_path / "s")
    async with server, open_channel(f"unix://{tmp_path}/s") as channel:
        with pytest.raises(errors.MeshUnavailable) as caught:
            await ask(session_pb2_grpc.SessionServiceStub(channel), "hang up now")
    assert caught.value.changed


def test_a_reason_of_a_newer_mesh_is_still_an_error_of_the_mesh() -> None:
    found = errors.from_detail(errors_pb2.ErrorDetail(reason=999, message="new"))  # type: ignore[arg-type]  # on purpose
    assert type(found) is SandmeshError
    assert found.message == "new"


def test_every_class_of_error_says_whose_fault_it_is() -> None:
    faults = {reason: made("text").fault for reason, made in errors.CLASSES.items()}
    assert {faults[name] for name in ("POOL_EXHAUSTED", "QUOTA_EXCEEDED", "TOO_LARGE", "DEADLINE_EXCEEDED")} == {
        "limit"
    }
    assert {faults[name] for name in ("INVALID_ARGUMENT", "TOOL_NOT_FOUND", "CAPABILITY_MISSING")} == {"task"}
    assert {faults[name] for name in ("MESH_UNAVAILABLE", "SANDBOX_NOT_FOUND", "INTERNAL", "LEASE_LOST")} == {"infra"}


@pytest.mark.parametrize(
    ("detail", "fault"),
    [
        ("signal 9", "infra"),
        ("signal 9: it ran out of the memory that its agent may use", "limit"),
        ("signal 9, out of memory", "limit"),
        ("its lease ran out", "limit"),
        ("its container is gone", "infra"),
    ],
)
def test_a_lost_sandbox_is_a_limits_fault_only_where_one_ended_it(detail: str, fault: str) -> None:
    assert errors.SandboxLost("it is gone", {"detail": detail}).fault == fault
    assert errors.from_detail(errors.to_detail(errors.SandboxLost("it is gone", {"detail": detail}))).fault == fault
