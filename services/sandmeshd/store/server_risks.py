"""What the settings of an external server endanger: one may evict records, another lose all of them at its restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redis import exceptions

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.store.client import Store

EVICTION_FIX = "run `CONFIG SET maxmemory-policy noeviction` there, and in its configuration file"
PERSISTENCE_FIX = "run `CONFIG SET appendonly yes` there, and in its configuration file"


@dataclass(frozen=True)
class Risk:
    """What may be lost, what to do about it, and whether a mesh is refused such a store."""

    detail: str
    fix: str
    refused: bool = False


async def read_risks(store: Store) -> list[Risk]:
    """Return what the settings of the store's server endanger; one that does not tell them is taken as it is."""
    try:
        memory, persistence = await store.server_info("memory"), await store.server_info("persistence")
    except exceptions.ResponseError:
        # Some services allow no INFO.
        return []
    return [risk for risk in (_eviction(memory), _persistence(persistence)) if risk is not None]


async def check_server(store: Store) -> list[Risk]:
    """Return the risks of a server that a mesh can live with.

    Raises:
        RuntimeUnavailable: It evicts records of sandboxes in use.
    """
    risks = await read_risks(store)
    for risk in risks:
        if risk.refused:
            raise RuntimeUnavailable(f"the store {risk.detail}: {risk.fix}", {"fix": risk.fix})
    return risks


def _eviction(memory: Mapping[str, str]) -> Risk | None:
    policy, limit = memory.get("maxmemory_policy", "noeviction"), memory.get("maxmemory", "0")
    if policy == "noeviction":
        return None
    if limit == "0":
        detail = f"would evict keys ({policy}) if it had a limit of memory, and records of sandboxes with them"
        return Risk(detail, EVICTION_FIX)
    what = "what is remembered of deleted sandboxes" if policy.startswith("volatile") else "records of sandboxes in use"
    detail = f"evicts keys when its memory is full ({policy}, {limit} bytes), and {what} with them"
    return Risk(detail, EVICTION_FIX, refused=not policy.startswith("volatile"))


def _persistence(persistence: Mapping[str, str]) -> Risk | None:
    if persistence.get("aof_enabled", "1") != "0":
        return None
    detail = (
        "keeps no log of its writes (appendonly no): after its restart sandboxes are found again by their drivers, "
        "but tokens, quotas, secrets and usage are as in its last snapshot, or gone"
    )
    return Risk(detail, PERSISTENCE_FIX)
