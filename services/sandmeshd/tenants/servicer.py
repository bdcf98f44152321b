"""QuotaService, as its proto specifies it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import structlog

from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmesh.api.quota.v1 import quota_pb2_grpc
from sandmesh.errors import InvalidArgument, PermissionDenied
from sandmeshd.auth.principal import current_principal
from sandmeshd.store import Store
from sandmeshd.tenants.holdings import CallShare, Holdings
from sandmeshd.tenants.quotas import QUOTAS, Kind, QuotaRecords
from sandmeshd.tenants.usage import UsageRecords

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]

_LONGEST_USER = 255
# The scripts of the store count in doubles.
_LARGEST = 2**53
_PROJECT = re.compile(r"[\w.-]{1,63}", re.ASCII)


Survey = Callable[[], Awaitable[None]]
"""Corrects what counts as snapshots by what the nodes have."""


class QuotaServicer(quota_pb2_grpc.QuotaServiceServicer):
    """Serve quotas; refusals are raised as exceptions of sandmesh.errors."""

    def __init__(self, store: Store, survey: Survey) -> None:
        self._records = QuotaRecords(store)
        self._usage = UsageRecords(store)
        self._holdings = Holdings(store)
        self._survey = survey

    async def SetQuota(self, request: pb.SetQuotaRequest, context: Context) -> pb.SetQuotaResponse:
        """Change the limits of a project or a user."""
        _check_admin()
        kind, name = _owner(request)
        limits = {field.name: int(value) for field, value in request.limits.ListFields()}
        _check_limits(limits, request)
        await self._records.set(kind, name, limits, request.removed)
        log.info("a quota was set", kind=kind, name=name, limits=limits, removed=list(request.removed))
        blank = pb.Quota(project=request.project, user_id=request.user_id, limits=pb.QuotaLimits(), use=pb.QuotaUse())
        current = [quota for quota in await self._all() if (quota.project or quota.user_id) == name]
        found = (quota for quota in current if bool(quota.project) == (kind == "project"))
        return pb.SetQuotaResponse(quota=next(found, blank))

    async def ListQuotas(self, request: pb.ListQuotasRequest, context: Context) -> pb.ListQuotasResponse:
        """List quotas and their use."""
        _check_admin(of_project=True)
        return pb.ListQuotasResponse(quotas=await self._all())

    async def _all(self) -> Sequence[pb.Quota]:
        await self._survey()
        return await self._records.all()

    async def AssignProject(self, request: pb.AssignProjectRequest, context: Context) -> pb.AssignProjectResponse:
        """Assign a user to a project."""
        _check_admin()
        _check_user(request.user_id)
        _check_project(request.project)
        await self._records.assign(request.user_id, request.project)
        log.info("a user was assigned to a project", user_id=request.user_id, project=request.project)
        return pb.AssignProjectResponse()

    async def ListUsage(self, request: pb.ListUsageRequest, context: Context) -> pb.ListUsageResponse:
        """List what projects and sandboxes had."""
        _check_admin(of_project=True)
        project = current_principal().project
        if project and request.project not in ("", project):
            message = f"the token is only for the project {project}: name that one, or none"
            raise PermissionDenied(message, {"field": "project"})
        request.project = project or request.project
        return await self._usage.list(request)

    async def HoldPort(self, request: pb.HoldPortRequest, context: Context) -> pb.HoldPortResponse:
        """Count a URL of a sandbox's."""
        expires_us = request.expire_time.ToMicroseconds()
        await self._holdings.hold_port(request.sandbox_id, request.exposure_id, expires_us)
        return pb.HoldPortResponse()

    async def ReleasePort(self, request: pb.ReleasePortRequest, context: Context) -> pb.ReleasePortResponse:
        """Count a URL no more."""
        await self._holdings.release_port(request.sandbox_id, request.exposure_id)
        return pb.ReleasePortResponse()

    async def ShareCalls(self, request: pb.ShareCallsRequest, context: Context) -> pb.ShareCallsResponse:
        """Divide the quotas of calls in flight among gateways."""
        counts = {_counted(count): (count.calls, count.wanted) for count in request.counts}
        shares = await self._holdings.share_calls(request.gateway_id, counts, leaving=request.leaving)
        return pb.ShareCallsResponse(shares=[_as_message(share) for share in shares])


def _counted(count: pb.CallCount) -> tuple[Kind, str]:
    return ("project", count.project) if count.project else ("caller", count.user_id)


def _as_message(share: CallShare) -> pb.CallShare:
    message = pb.CallShare(limit=share.limit, granted=share.granted, elsewhere=share.elsewhere)
    setattr(message, "project" if share.kind == "project" else "user_id", share.name)
    return message


def _check_admin(*, of_project: bool = False) -> None:
    principal = current_principal()
    if principal.scope == "user" and not (of_project and principal.project):
        raise PermissionDenied(
            "quotas and usage are an administrator's: use a token of the scope admin, or the mesh's own user"
        )


def _owner(request: pb.SetQuotaRequest) -> tuple[Kind, str]:
    if bool(request.project) == bool(request.user_id):
        raise InvalidArgument("a quota is a project's or a user's: name one of the two", {"field": "project"})
    if request.project:
        _check_project(request.project)
        return "project", request.project
    _check_user(request.user_id)
    return "caller", request.user_id


def _check_project(name: str) -> None:
    if not _PROJECT.fullmatch(name):
        rule = "has 1 to 63 letters, digits, dots, dashes and underscores"
        raise InvalidArgument(f"project {rule}, unlike {name!r}", {"field": "project"})


def _check_user(user_id: str) -> None:
    if len(user_id) > _LONGEST_USER:
        raise InvalidArgument(f"user_id has at most {_LONGEST_USER} characters", {"field": "user_id"})


def _check_limits(limits: dict[str, int], request: pb.SetQuotaRequest) -> None:
    for name in request.removed:
        if name not in QUOTAS:
            raise InvalidArgument(f"there is no quota {name!r}, but {', '.join(QUOTAS)}", {"field": "removed"})
        if name in limits:
            raise InvalidArgument(f"the quota {name} is both set and removed: do one", {"field": "removed"})
    if not limits and not request.removed:
        raise InvalidArgument(f"set or remove at least one quota: {', '.join(QUOTAS)}", {"field": "limits"})
    for name, limit in limits.items():
        if limit > _LARGEST:
            raise InvalidArgument(f"{name} is at most {_LARGEST}", {"field": f"limits.{name}"})
