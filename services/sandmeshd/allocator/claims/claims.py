"""Claims: from a request to a READY, leased sandbox whose agent knows the token."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import (
    InvalidArgument,
    LeaseLost,
    NotFound,
    Recovering,
    RuntimeUnavailable,
    SandboxLost,
    SandmeshError,
    StoreUnavailable,
    WorkspaceNotReady,
)
from sandmeshd.allocator.background import Background, wait_briefly
from sandmeshd.allocator.claims.exhaustion import exhausted
from sandmeshd.allocator.claims.starts import Starts
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.nodes.snapshots import Snapshotting
from sandmeshd.allocator.records.ledger import Claim, Ledger, Reply
from sandmeshd.allocator.records.records import Record
from sandmeshd.allocator.records.retry import patiently
from sandmeshd.allocator.records.spec import check_name, check_spec, new_sandbox_id
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.principal import workspace_key
from sandmeshd.store import Store

# Whose cap sessions without a user count against: nobody can tell them apart.
ANONYMOUS = "anonymous"

_NOTE_SECONDS = 0.1


class Claims:
    """Serves ClaimSandbox."""

    def __init__(
        self,
        settings: AllocatorSettings,
        store: Store,
        ledger: Ledger,
        nodes: Nodes,
        starts: Starts,
        snapshots: Snapshotting,
    ) -> None:
        background = starts.background
        self._settings = settings
        self._snapshots = snapshots
        self._notices = store.notices
        self._ledger = ledger
        self._nodes = nodes
        self._starts = starts
        self._given = Given(ledger, nodes, starts, background)
        self._background = background

    async def claim(
        self, request: pb.ClaimSandboxRequest, ttl_us: int, queue_seconds: float, ready_seconds: float | None
    ) -> pb.ClaimSandboxResponse:
        """Give the session's slot a sandbox; one that the caller no longer waits for is given back.

        Raises:
            PoolExhausted: The mesh was full for `queue_seconds`.
            DeadlineExceeded: The template was not made ready within `ready_seconds`; None waits for ever.
            TemplateNotFound, CapabilityMissing, InvalidArgument, SandboxStartFailed, RuntimeUnavailable: As named.
        """
        try:
            async with asyncio.timeout(ready_seconds):
                claim = await self._claim_of(request, ttl_us)
        except TimeoutError as error:
            raise error if isinstance(error, SandmeshError) else self._nodes.late(request.spec.template) from None
        attempt = _Attempt(claim, self._ledger, self._given, queue_seconds, self._settings.poll_seconds)
        try:
            with self._notices.expect(claim.ticket) as woken:
                return await attempt.run(woken)
        except (StoreUnavailable, Recovering):
            # The claim may have been taken all the same; whether it was is found out when the store answers again.
            self._background.spawn(self._leave(claim))
            raise
        except SandmeshError:
            await self._background.spawn(self._leave(claim))
            raise
        except BaseException:
            # The caller has gone: nobody waits for what is taken back.
            self._background.spawn(self._leave(claim))
            raise

    async def _claim_of(self, request: pb.ClaimSandboxRequest, ttl_us: int) -> Claim:
        check_spec(request.spec)
        check_name(request.session_key, "session_key")
        slot = request.slot or request.spec.template
        check_name(slot, "slot")
        spec = await self._snapshots.placed(request.spec)
        placement = await self._nodes.place(spec, _caller(request.user_id))
        want, workspace = await self._snapshots.narrowed(spec, placement.want), ""
        # A directory of the host keeps by itself what is in it.
        kept = request.keep_workspace and not spec.workspace_dir
        if kept and (keeping := self._nodes.keeping(want.nodes)):
            want, workspace = replace(want, nodes=keeping), workspace_key(request.session_key, slot)
        return Claim(
            session=request.session_key,
            slot=slot,
            ticket=secrets.token_hex(12),
            sandbox_id=new_sandbox_id(),
            ttl_us=ttl_us,
            spec=placement.spec,
            want=want,
            idle_us=self._idle_us(request),
            user_id=request.user_id,
            session_id=request.session_id,
            workspace=workspace,
        )

    def _idle_us(self, request: pb.ClaimSandboxRequest) -> int:
        if not request.HasField("idle_timeout"):
            return int(self._settings.default_idle_seconds * 1e6)
        microseconds = request.idle_timeout.ToMicroseconds()
        least, most = self._settings.min_idle_seconds, self._settings.max_ttl_seconds
        if not least * 1e6 <= microseconds <= most * 1e6:
            rule = f"is {least:g} to {most:g} s"
            raise InvalidArgument(f"idle_timeout {rule}", {"field": "idle_timeout"})
        return microseconds

    async def _leave(self, claim: Claim) -> None:
        stopped = await patiently(partial(self._ledger.leave, claim))
        if stopped:
            await self._starts.end(stopped)


def _caller(user_id: str) -> str:
    # Made-up users begin so, here and in the SDK.
    return ANONYMOUS if not user_id or user_id.startswith(f"{ANONYMOUS}-") else user_id


class Given:
    """Turns what the store gave into an answer; None means that the claim has to be made again."""

    def __init__(self, ledger: Ledger, nodes: Nodes, starts: Starts, background: Background) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._starts = starts
        self._background = background

    async def created(self, claim: Claim, record: Record) -> pb.ClaimSandboxResponse | None:
        """Start the new sandbox."""
        del claim
        task = self._starts.begin(record)
        outcome = await asyncio.shield(task)
        if isinstance(outcome, SandmeshError):
            raise outcome
        return pb.ClaimSandboxResponse(sandbox=outcome.sandbox(), claimed=True)

    async def kept(self, claim: Claim, record: Record) -> pb.ClaimSandboxResponse | None:
        """Answer with what the slot has."""
        del claim
        # Whoever claimed it from the pool may have died before its agent knew the token.
        current = record if record.text("installed") == "1" else await self._install(record)
        return pb.ClaimSandboxResponse(sandbox=current.sandbox()) if current else None

    async def pooled(self, claim: Claim, record: Record) -> pb.ClaimSandboxResponse | None:
        """Make the agent of a sandbox from the pool accept its new holder only."""
        del claim
        current = await self._install(record)
        return pb.ClaimSandboxResponse(sandbox=current.sandbox(), claimed=True, pooled=True) if current else None

    async def failed(self, claim: Claim, record: Record) -> pb.ClaimSandboxResponse | None:
        """Say why the sandbox that others were starting for this slot failed."""
        del claim
        raise record.failure

    async def _install(self, record: Record) -> Record | None:
        node = self._nodes.by_id(record.node_id)
        if node is None:
            raise RuntimeUnavailable(f"node {record.node_id} does not answer", {"fix": "start its driver"})
        request = driver_pb2.InstallTokenRequest(
            sandbox_id=record.sandbox_id,
            fencing_token=record.token,
            record_labels=record.labels(),
            workspace_key=record.workspace,
        )
        try:
            await node.client.install_token(request)
        except (SandboxLost, NotFound, LeaseLost) as error:
            await self._ledger.release(record.sandbox_id, record.token, f"its agent took no token: {error.message}")
            return None
        self._background.spawn(self._note_installed(record))
        return record

    async def _note_installed(self, record: Record) -> None:
        # Whether it is noted in time changes nothing: a claim that finds it missing installs the token again. Just now
        # the session opens a link and sends its first call.
        await asyncio.sleep(_NOTE_SECONDS)
        await self._ledger.installed(record.sandbox_id, record.token)


class _Attempt:
    """One request on its way through queue and start."""

    def __init__(self, claim: Claim, ledger: Ledger, given: Given, queue_seconds: float, poll_seconds: float) -> None:
        self._claim = claim
        self._ledger = ledger
        self._poll_seconds = poll_seconds
        self._end = asyncio.get_running_loop().time() + queue_seconds
        self._waited = ""
        self._kinds: dict[str, Callable[[Claim, Record], Awaitable[pb.ClaimSandboxResponse | None]]] = {
            "create": given.created,
            "kept": given.kept,
            "pooled": given.pooled,
            "failed": given.failed,
        }

    async def run(self, woken: asyncio.Event) -> pb.ClaimSandboxResponse:
        """Ask the store until it gives a sandbox that works."""
        while True:
            woken.clear()
            reply = await self._ledger.claim(self._claim, self._waited)
            response = await self._answer(reply, woken)
            if response is not None:
                return response

    async def _answer(self, reply: Reply, woken: asyncio.Event) -> pb.ClaimSandboxResponse | None:
        if reply.kind == "queued":
            left = self._end - asyncio.get_running_loop().time()
            if left <= 0:
                raise exhausted(await self._ledger.capacity(), self._claim.want, reply.bound)
            await wait_briefly(woken, min(left, self._poll_seconds))
            return None
        if reply.kind == "wait" and reply.record is not None:
            self._waited = reply.record.sandbox_id
            self._check_saving(reply.record)
            await wait_briefly(woken, self._poll_seconds)
            return None
        if reply.record is None:
            raise SandboxLost("the claim was given up", {"detail": "its caller went away"})
        return await self._kinds[reply.kind](self._claim, reply.record)

    def _check_saving(self, last: Record) -> None:
        # One that failed once may fail for long: whoever asks decides whether to go on waiting.
        over = bool(last.text("trouble")) or asyncio.get_running_loop().time() > self._end
        if last.state == "STOPPING" and over:
            detail = last.text("trouble") or "it is on its way to the storage"
            message = (
                f"the workspace of the session's last sandbox, {last.sandbox_id}, is not saved yet: {detail}. "
                "Nothing is lost; ask again when it is saved"
            )
            raise WorkspaceNotReady(message, {"workspace": last.workspace, "detail": detail})
