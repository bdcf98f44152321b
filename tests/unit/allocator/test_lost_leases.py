"""The leases of sandboxes that were lost: what is left of one goes soon where nobody holds it any more."""

from __future__ import annotations

from sandmeshd.allocator.maintenance.maintenance_store import MaintenanceStore
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.settings import AllocatorSettings
from sandmeshd.store import Store
from tests.unit.allocator.made_records import HOUR_US, make_ready

MINUTE_US = 60_000_000


async def _left(records: RecordStore) -> int:
    record = await records.read("sb_one0")
    assert record is not None
    return record.number("deadline_us") - record.number("since_us")


async def test_a_lost_sandbox_ends_in_minutes_unless_its_holder_renews_it(store: Store) -> None:
    records = RecordStore(store, 10_000_000)
    maintenance = MaintenanceStore(store, records, AllocatorSettings())
    await maintenance.open()
    await make_ready(store, "one", 1)
    before = await records.read("sb_one0")
    assert before is not None
    assert await maintenance.lost("sb_one0", "its engine was restarted")
    assert await _left(records) == 10 * MINUTE_US
    assert (await records.renew("sb_one0", before.token, HOUR_US)).kind == "renewed"
    assert await _left(records) > 50 * MINUTE_US
