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
    CapabilityMissing,
    InvalidArgument,
    LeaseLost,
    NotFound,
    Recovering,
    RuntimeUnavailable,
    SandboxLost,
    SandmeshError,
    StoreUnavailable,
    WorkspaceNotReady,
    WrongState,
)
from sandmesh.shared.traces.context import add_event
from sandmeshd.allocator.claims.capacity_errors import pool_exhausted, quota_error
from sandmeshd.allocator.claims.pace import Pace
from sandmeshd.allocator.claims.starter import ClaimStarter
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.allocator.nodes.snapshots import NodeSnapshots
from sandmeshd.allocator.records.record_store import BatchTurn, Claim, NodeWant, RecordStore, Reply, Want
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.allocator.records.spec import check_name, check_spec, limited_to, new_sandbox_id, with_owner
from sandmeshd.allocator.rounds import wait_with_timeout
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.auth.doors import check_labels
from sandmeshd.auth.principal import counted_user, current_principal, profile_key, workspace_key
from sandmeshd.runtime.retry import retry_until_available
from sandmeshd.runtime.telemetry.phases import phase, recorded_phases
from sandmeshd.store import Store
from sandmeshd.store.notifications import Notifications

_NOTE_SECONDS = 0.1

_EVENTS = {"create": "cold", "pooled": "warm", "kept": "kept"}
"""What happened to a claim, as its span names it."""

_BATCH_POLLS = 3
_LARGEST_SHARE = 100


class Claims:
    """Serve ClaimSandbox."""

    def __init__(
        self,
        settings: AllocatorSettings,
        store: Store,
        records: RecordStore,
        nodes: Nodes,
        starter: ClaimStarter,
        snapshots: NodeSnapshots,
    ) -> None:
        self._settings = settings
        self._snapshots = snapshots
        self._notifications = store.notifications
        self._records = records
        self._nodes = nodes
        self._starter = starter
        self._outcomes = ClaimOutcomes(records, nodes, starter, store.notifications)
        self._tasks = starter.tasks

    async def claim(
        self, request: pb.ClaimSandboxRequest, ttl_us: int, queue_seconds: float, ready_seconds: float | None
    ) -> pb.ClaimSandboxResponse:
        """Claim a sandbox for the session's slot; it is released again when the client stops waiting.

        Raises:
            PoolExhausted: The mesh was full for `queue_seconds`.
            QuotaExceeded: A quota of the user or the project is reached.
            DeadlineExceeded: The template was not made ready within `ready_seconds`; None waits for ever.
            TemplateNotFound, CapabilityMissing, InvalidArgument, SandboxStartFailed, RuntimeUnavailable: As named.
        """
        with recorded_phases():
            return await self._claim(request, ttl_us, queue_seconds, ready_seconds)

    async def _claim(
        self, request: pb.ClaimSandboxRequest, ttl_us: int, queue_seconds: float, ready_seconds: float | None
    ) -> pb.ClaimSandboxResponse:
        try:
            with phase("place"):
                async with asyncio.timeout(ready_seconds):
                    claim = await self._claim_of(request, ttl_us)
        except TimeoutError as error:
            if isinstance(error, SandmeshError):
                raise
            raise self._nodes.late(request.spec.template) from None
        attempt = _ClaimAttempt(
            claim, self._records, self._outcomes, queue_seconds, self._settings.poll_seconds, self._widened
        )
        try:
            with self._notifications.subscribe(claim.ticket) as woken:
                return await attempt.run(woken)
        except (StoreUnavailable, Recovering):
            # The claim may have succeeded all the same, which shows when the store answers again.
            self._tasks.spawn(self._leave(claim))
            raise
        except SandmeshError:
            await self._tasks.spawn(self._leave(claim))
            raise
        except BaseException:
            # The client disconnected: there is no need to wait for the withdrawal.
            self._tasks.spawn(self._leave(claim))
            raise

    async def _claim_of(self, request: pb.ClaimSandboxRequest, ttl_us: int) -> Claim:
        check_spec(request.spec)
        check_labels(request.spec.labels, current_principal())
        check_name(request.session_key, "session_key")
        slot = request.slot or request.spec.template
        check_name(slot, "slot")
        owned = with_owner(limited_to(current_principal(), request.spec), counted_user(request.user_id))
        spec = await self._snapshots.placed(owned)
        placement = await self._nodes.place(spec, counted_user(request.user_id), drawn=True)
        want, workspace = await self._snapshots.narrowed(spec, placement.want), ""
        # A directory of the host keeps its content by itself.
        kept = request.keep_workspace and not spec.workspace_dir
        if kept and (keeping := self._nodes.keeping(want.nodes)):
            want, workspace = replace(want, nodes=keeping), workspace_key(request.session_key, slot)
        want = replace(want, batch=self._batch_turn(request))
        profile = ""
        if spec.browser_profile:
            want = replace(want, nodes=self._nodes.keeping_profiles(want.nodes, spec.template))
            profile = profile_key(counted_user(request.user_id), spec.browser_profile)
        template = self._template(want, spec.template)
        idle_us = self._idle_us(request, template)
        on_idle, want = self._on_idle(request.on_idle or template.on_idle, idle_us, want)
        return Claim(
            session=request.session_key,
            slot=slot,
            ticket=secrets.token_hex(12),
            sandbox_id=new_sandbox_id(),
            ttl_us=ttl_us,
            spec=placement.spec,
            want=want,
            idle_us=idle_us,
            on_idle=on_idle,
            auto_resume="no" if request.HasField("auto_resume") and not request.auto_resume else "",
            user_id=request.user_id,
            session_id=request.session_id,
            workspace=f"{workspace}+{profile}" if profile else workspace,
            profile=profile,
        )

    async def _widened(self, claim: Claim) -> Claim:
        """Return a claim on every node, where it was on a few that have no room."""
        want = (await self._nodes.place(claim.spec, claim.want.caller)).want
        if claim.workspace and (keeping := self._nodes.keeping(want.nodes)):
            want = replace(want, nodes=keeping)
        if claim.on_idle == "pause":
            want = replace(want, nodes=_pausing(self._nodes, want))
        return replace(claim, want=replace(want, batch=claim.want.batch))

    def _batch_turn(self, request: pb.ClaimSandboxRequest) -> BatchTurn | None:
        if not request.HasField("batch"):
            return None
        if request.batch.share > _LARGEST_SHARE:
            raise InvalidArgument(f"batch.share is at most {_LARGEST_SHARE}", {"field": "batch.share"})
        return BatchTurn(request.batch.job, request.batch.share or 1, self._settings.batch_starts)

    def _template(self, want: Want, name: str) -> driver_pb2.TemplateInfo:
        """Return what the first node that may run it knows of a template."""
        found = (node.template(name) for one in want.nodes if (node := self._nodes.by_id(one.id)) is not None)
        return next((value for value in found if value is not None), driver_pb2.TemplateInfo())

    def _idle_us(self, request: pb.ClaimSandboxRequest, template: driver_pb2.TemplateInfo) -> int:
        stated = next((source for source in (request, template) if source.HasField("idle_timeout")), None)
        if stated is None:
            return int(self._settings.default_idle_seconds * 1e6)
        microseconds = stated.idle_timeout.ToMicroseconds()
        least, most = self._settings.min_idle_seconds, self._settings.max_ttl_seconds
        if not least * 1e6 <= microseconds <= most * 1e6:
            rule = f"must be {least:g} to {most:g} s"
            raise InvalidArgument(f"idle_timeout {rule}", {"field": "idle_timeout"})
        return microseconds

    def _on_idle(self, action: pb.IdleAction.ValueType, idle_us: int, want: Want) -> tuple[str, Want]:
        """Return what is done after the idle time, and the want of nodes that can."""
        able = _pausing(self._nodes, want)
        if not action:
            paused = self._settings.default_idle_action == "pause" and len(able) == len(want.nodes)
            return ("pause" if paused and idle_us else ""), want
        if action != pb.IDLE_ACTION_PAUSE:
            return "", want
        if not idle_us:
            message = "on_idle needs an idle_timeout: without one, nothing is done with a sandbox that is not used"
            raise InvalidArgument(message, {"field": "on_idle"})
        if not able:
            message = f"the driver {want.nodes[0].driver} cannot pause: drop on_idle, or choose another driver"
            raise CapabilityMissing(message, {"needs": "pause"})
        return "pause", replace(want, nodes=able)

    async def _leave(self, claim: Claim) -> None:
        stopped = await retry_until_available(partial(self._records.leave, claim))
        if stopped:
            await self._starter.cancel(stopped)


def _pausing(nodes: Nodes, want: Want) -> list[NodeWant]:
    """Return the nodes that can pause sandboxes."""
    known = ((one, nodes.by_id(one.id)) for one in want.nodes)
    return [one for one, node in known if node is not None and node.info and node.info.capabilities.pause]


def _profile_in_use(name: str, holder: RecordState) -> WrongState:
    message = (
        f"the browser profile {name!r} is in use by the sandbox {holder.sandbox_id}: close that sandbox, or choose "
        "another profile"
    )
    return WrongState(message, {"state": holder.state, "sandbox_id": holder.sandbox_id, "profile": name})


class ClaimOutcomes:
    """Turn what the store returned into a response; None means that the claim has to be repeated."""

    def __init__(self, records: RecordStore, nodes: Nodes, starter: ClaimStarter, notifications: Notifications) -> None:
        self._notifications = notifications
        self._records = records
        self._nodes = nodes
        self._starter = starter
        self._tasks = starter.tasks
        self._pace = Pace()

    async def created(self, claim: Claim, record: RecordState) -> pb.ClaimSandboxResponse | None:
        """Start the new sandbox."""
        if claim.want.batch is None:
            with self._pace.create():
                outcome = await asyncio.shield(self._starter.start(record))
        else:
            async with self._pace.batch_start():
                outcome = await asyncio.shield(self._starter.start(record))
        if isinstance(outcome, SandmeshError):
            raise outcome
        return pb.ClaimSandboxResponse(sandbox=outcome.sandbox(), claimed=True)

    async def kept(self, claim: Claim, record: RecordState) -> pb.ClaimSandboxResponse | None:
        """Respond with the sandbox that the slot has."""
        del claim
        # The allocator that claimed it from the pool may have died before its agent knew the token.
        current = record if record.text("installed") == "1" else await self._install(record)
        return pb.ClaimSandboxResponse(sandbox=current.sandbox()) if current else None

    async def pooled(self, claim: Claim, record: RecordState) -> pb.ClaimSandboxResponse | None:
        """Install the new holder's token in the agent of a sandbox from the pool."""
        del claim
        current = await self._install(record)
        # Each claim from the pool refills it: through the store, the caller would wait for the notification, too.
        self._notifications.notify("pool")
        return pb.ClaimSandboxResponse(sandbox=current.sandbox(), claimed=True, pooled=True) if current else None

    async def failed(self, claim: Claim, record: RecordState) -> pb.ClaimSandboxResponse | None:
        """Raise the failure of the sandbox that others were starting for this slot."""
        del claim
        raise record.failure

    async def _install(self, record: RecordState) -> RecordState | None:
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
            await self._records.release(record.sandbox_id, record.token, f"its agent took no token: {error.message}")
            return None
        self._tasks.spawn(self._note_installed(record))
        return record

    async def _note_installed(self, record: RecordState) -> None:
        # Late is harmless, since a claim that finds it missing installs the token again. Right now the session opens a
        # link and sends its first call, which must not wait for this.
        await asyncio.sleep(_NOTE_SECONDS)
        await self._records.installed(record.sandbox_id, record.token)


class _ClaimAttempt:
    """One request, from the queue to a started sandbox."""

    def __init__(
        self,
        claim: Claim,
        records: RecordStore,
        outcomes: ClaimOutcomes,
        queue_seconds: float,
        poll_seconds: float,
        widened: Callable[[Claim], Awaitable[Claim]],
    ) -> None:
        self._drawn = claim
        self._claim = claim
        self._want = claim.want
        self._records = records
        self._poll_seconds = poll_seconds
        self._widened = widened
        self._end = asyncio.get_running_loop().time() + queue_seconds
        self._waited = ""
        self._kinds: dict[str, Callable[[Claim, RecordState], Awaitable[pb.ClaimSandboxResponse | None]]] = {
            "create": outcomes.created,
            "kept": outcomes.kept,
            "pooled": outcomes.pooled,
            "failed": outcomes.failed,
        }

    async def run(self, woken: asyncio.Event) -> pb.ClaimSandboxResponse:
        """Repeat the claim until it yields a sandbox that works."""
        while True:
            woken.clear()
            reply = await self._records.claim(self._claim, self._waited)
            response = await self._respond(reply, woken)
            if response is not None:
                return response

    async def _respond(self, reply: Reply, woken: asyncio.Event) -> pb.ClaimSandboxResponse | None:
        if reply.kind == "widen":
            self._claim = await self._widened(self._claim)
            self._want = self._claim.want
            return None
        if reply.kind == "queued":
            # The queue knows all the nodes by now.
            self._claim = self._drawn
            with phase("queue"):
                await self._wait_for_room(reply, woken)
            return None
        if reply.kind == "wait" and reply.record is not None:
            self._waited = reply.record.sandbox_id
            self._check_saving(reply.record)
            await wait_with_timeout(woken, self._poll_seconds)
            return None
        if reply.quota is not None:
            raise quota_error(reply.quota, self._want)
        if reply.kind == "profile" and reply.record is not None:
            raise _profile_in_use(self._claim.spec.browser_profile, reply.record)
        if reply.record is None:
            raise SandboxLost("the claim was withdrawn", {"detail": "its client disconnected"})
        if reply.kind in _EVENTS:
            add_event(_EVENTS[reply.kind], {"sandmesh.sandbox_id": reply.record.sandbox_id})
        return await self._kinds[reply.kind](self._claim, reply.record)

    async def _wait_for_room(self, reply: Reply, woken: asyncio.Event) -> None:
        left = self._end - asyncio.get_running_loop().time()
        if left <= 0 and reply.quota is not None:
            raise quota_error(reply.quota, self._want)
        if left <= 0:
            raise pool_exhausted(await self._records.capacity(), self._want, reply.bound)
        # Hundreds of one batch may wait: notifications wake them, and polling is for those that were lost.
        pause = self._poll_seconds if self._want.batch is None else min(_BATCH_POLLS * self._poll_seconds, 3.0)
        await wait_with_timeout(woken, min(left, pause))

    def _check_saving(self, last: RecordState) -> None:
        # A save that failed once may fail for long: the client decides whether to go on waiting.
        over = bool(last.text("trouble")) or asyncio.get_running_loop().time() > self._end
        if last.state == "STOPPING" and over:
            detail = last.text("trouble") or "it is on its way to the storage"
            message = (
                f"the workspace of the session's last sandbox, {last.sandbox_id}, is not saved yet: {detail}. "
                "Nothing is lost; try again when it is saved"
            )
            raise WorkspaceNotReady(message, {"workspace": last.workspace, "detail": detail})
