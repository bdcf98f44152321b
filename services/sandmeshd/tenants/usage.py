"""What projects and sandboxes had, as the store counts it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.store import Store

LARGEST_LIMIT = 1000
_DEFAULT_LIMIT = 100
_DAY_SECONDS = 86400
_COUNTED = 100
"""The sandboxes of a page: claims wait for a few milliseconds of the store."""


async def count_usage(store: Store, sandbox_id: str = "", share: float = 1.0) -> None:
    """Count what all sandboxes, or one, had up to now, a page at a time, with at most that share of the store's time.

    Raises:
        Recovering: Records are being rebuilt.
    """
    ids, loop = [sandbox_id] if sandbox_id else [], asyncio.get_running_loop()
    for kind in ("metered", "unheld"):
        cursor = ""
        while cursor != "0":
            began = loop.time()
            arguments = {"kind": kind, "cursor": cursor or "0", "count": _COUNTED, "ids": ids}
            cursor = (await store.run("usage_meter", arguments))[0].decode()
            if cursor != "0" and share < 1:
                await asyncio.sleep((loop.time() - began) * (1 / share - 1))


class UsageRecords:
    """The usage of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self, request: pb.ListUsageRequest) -> pb.ListUsageResponse:
        """Return what projects and sandboxes had up to now, projects by name.

        Raises:
            InvalidArgument: The limit or the time does not fit.
            Recovering: Records are being rebuilt.
        """
        if request.limit > LARGEST_LIMIT:
            raise InvalidArgument(f"limit is at most {LARGEST_LIMIT}", {"field": "limit"})
        arguments = {
            "first_day": _first_day(request),
            "project": request.project,
            "ids": [request.sandbox_id] if request.sandbox_id else [],
            "limit": request.limit or _DEFAULT_LIMIT,
        }
        await count_usage(self._store, request.sandbox_id)
        sums, rows = await self._store.run("usage_list", arguments)
        sandboxes = [_sandbox(rows[index].decode(), _pairs(rows[index + 1])) for index in range(0, len(rows), 2)]
        projects: Sequence[pb.Usage] = () if request.sandbox_id else _projects(_pairs(sums))
        return pb.ListUsageResponse(
            projects=[project for project in projects if request.project in ("", project.project)], sandboxes=sandboxes
        )


def _first_day(request: pb.ListUsageRequest) -> int:
    if not request.HasField("since"):
        return 0
    day = request.since.seconds // _DAY_SECONDS
    if day < 1:
        raise InvalidArgument("since is a time after 1970, or left out", {"field": "since"})
    return day


def _pairs(flat: Sequence[bytes]) -> dict[str, str]:
    texts = [value.decode() for value in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _projects(sums: Mapping[str, str]) -> Sequence[pb.Usage]:
    amounts: dict[str, dict[str, str]] = {}
    for name, amount in sums.items():
        measure, _, project = name.partition(":")
        amounts.setdefault(project, {})[measure] = amount
    return [_usage(project, measures) for project, measures in sorted(amounts.items())]


def _sandbox(sandbox_id: str, fields: Mapping[str, str]) -> pb.Usage:
    usage = _usage(fields["project"], fields)
    usage.sandbox_id, usage.user_id, usage.template = sandbox_id, fields["user"], fields["template"]
    usage.start_time.CopyFrom(_time(fields.get("since_us", fields["counted_us"])))
    usage.end_time.CopyFrom(_time(fields["counted_us"]))
    return usage


def _usage(project: str, measures: Mapping[str, str]) -> pb.Usage:
    return pb.Usage(
        project=project,
        sandbox_seconds=int(measures.get("sandbox_ms", "0")) / 1000,
        cpu_seconds=int(measures.get("cpu_ms", "0")) / 1000,
        memory_byte_seconds=int(measures.get("memory_byte_seconds", "0")),
        egress_bytes=int(measures.get("egress_bytes", "0")),
        cost=int(measures.get("cost_nano", "0")) / 1e9,
    )


def _time(microseconds: str) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(int(microseconds))
    return stamp
