"""What must hold of the store's data after every step, whatever came before it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandmeshd.store import Store
from tests.unit.store.waiting import commands

# Everything at one moment: {key, type, content, ...}.
_DUMP = """
local answer = {}
local read = {hash = 'HGETALL', set = 'SMEMBERS', string = 'GET'}
for _, name in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', name).ok
  local content = {}
  if kind == 'zset' then content = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
  elseif read[kind] then content = redis.call(read[kind], name) end
  for _, word in ipairs({name, kind, content}) do answer[#answer + 1] = word end
end
return answer
"""

LEASED = {"PENDING", "STARTING", "READY", "PAUSED", "LOST"}
COUNTED = {"PENDING", "STARTING", "READY", "PAUSED"}
RUNNING = {"READY", "PAUSED"}


@dataclass(frozen=True)
class Caps:
    """The bounds that claims keep to."""

    mesh: int
    node: int
    template: int
    caller: int


@dataclass(frozen=True)
class Data:
    """The store's keys without the mesh's prefix: hashes and sorted sets as dicts, sets as sets, strings as texts."""

    keys: Mapping[str, Any]

    @property
    def records(self) -> dict[str, dict[str, str]]:
        return {fields["id"]: fields for fields in self.below("sandbox").values()}

    def below(self, kind: str) -> dict[str, Any]:
        return {name.partition(":")[2]: value for name, value in self.keys.items() if name.startswith(f"{kind}:")}

    def get(self, name: str) -> Any:
        return self.keys.get(name, {})

    def ids(self, *states: str) -> set[str]:
        return {sandbox_id for sandbox_id, fields in self.records.items() if fields["state"] in states}


async def dump(store: Store) -> Data:
    """Read everything in one step."""
    flat = await commands(store).eval(_DUMP, 0)
    keys: dict[str, Any] = {}
    for name, kind, content in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        keys[name.decode().removeprefix(f"{store.prefix}:")] = _content(kind.decode(), content)
    return Data(keys)


def _content(kind: str, content: Any) -> Any:
    if kind in ("hash", "zset"):
        return {a.decode(): b.decode(errors="replace") for a, b in zip(content[::2], content[1::2], strict=True)}
    if kind == "set":
        return {member.decode() for member in content}
    return content.decode() if kind == "string" else content


def check(data: Data, caps: Caps | None) -> None:
    """Fail where the data contradicts itself; without caps their numbers are not looked at."""
    _check_indexes(data)
    _check_capacity(data, caps)
    _check_sessions(data)
    _check_pools(data)
    _check_queue(data)
    _check_batches(data)


def _check_indexes(data: Data) -> None:
    records = data.records
    assert set(data.get("ids")) == set(records)
    assert set(data.get("starting")) == data.ids("PENDING", "STARTING")
    assert set(data.get("stopping")) == data.ids("STOPPING")
    held = {one for one, fields in records.items() if fields["holder"] and fields["state"] != "STOPPING"}
    assert set(data.get("leases")) == held
    for one in held:
        assert int(float(data.get("leases")[one])) == int(records[one]["deadline_us"])
    # One that is paused when it is idle waits for nothing more once it is.
    paused = data.ids("PAUSED")
    assert set(data.get("paused")) == paused
    resting = {sandbox_id for sandbox_id in paused if records[sandbox_id]["on_idle"] == "pause"}
    idle = {identifier for identifier in data.ids(*RUNNING) if records[identifier]["idle_us"] != "0"}
    assert set(data.get("idle")) == idle - resting
    assert set(data.get("acting")) == {one for one, fields in records.items() if fields["intent"]}
    for one in data.ids("PENDING", "STARTING"):
        assert records[one]["owner"]
    assert set(data.below("interest")) <= data.ids("PENDING", "STARTING")
    labelled: defaultdict[str, set[str]] = defaultdict(set)
    for one, fields in records.items():
        for label in json.loads(fields.get("labels", "[]")):
            labelled[label].add(one)
    assert data.below("label") == labelled


def _check_capacity(data: Data, caps: Caps | None) -> None:
    records = data.records
    used: set[str] = set(data.get("used"))
    assert data.ids(*COUNTED) <= used <= data.ids(*COUNTED, "STOPPING")
    bounds = {"node": caps.node, "template": caps.template, "caller": caps.caller} if caps else {}
    held: dict[str, dict[str, int]] = {}
    for kind in ("node", "template", "caller", "project"):
        cap = bounds.get(kind)
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for one in used:
            if kind in ("node", "template") or records[one]["session"]:
                groups[records[one][kind]].add(one)
        assert data.below(kind) == groups
        assert set(data.get(f"names:{kind}")) == set(groups)
        assert cap is None or all(len(group) <= cap for group in groups.values()), (kind, groups)
        if kind in ("caller", "project"):
            held |= {f"{kind}:{name}": _sums(records, group) for name, group in groups.items()}
    found = {name: {key: int(value) for key, value in sums.items()} for name, sums in data.below("held").items()}
    nothing = {"memory_bytes": 0, "cpu_millis": 0}
    assert {name: nothing | sums for name, sums in found.items() if any(sums.values())} == {
        name: sums for name, sums in held.items() if any(sums.values())
    }
    _check_endings(data)
    _check_resting(data)
    assert caps is None or len(used) <= caps.mesh
    ports: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for one in used:
        for port in filter(None, records[one]["ports"].split(",")):
            assert port not in ports[records[one]["node"]]
            ports[records[one]["node"]][port] = one
    assert data.below("ports") == ports


def _check_resting(data: Data) -> None:
    """A sandbox counts as paused from the intent to pause it until the intent to resume it."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for one, fields in data.records.items():
        if fields["state"] in RUNNING and fields["session"] and (fields["intent"] or fields["state"]) == "PAUSED":
            for kind in ("caller", "project"):
                groups[f"{kind}:{fields[kind]}"].add(one)
    assert data.below("resting") == groups


def _check_endings(data: Data) -> None:
    """What is being deleted and still counts is in the sums of its caller and project."""
    records = data.records
    expected: dict[str, dict[str, int]] = {}
    for kind in ("caller", "project"):
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for one in set(data.get("used")) & data.ids("STOPPING"):
            if records[one]["session"]:
                groups[records[one][kind]].add(one)
        expected |= {
            f"{kind}:{name}": {"sandboxes": len(group)} | _sums(records, group) for name, group in groups.items()
        }
    nothing = {"sandboxes": 0, "memory_bytes": 0, "cpu_millis": 0}
    found = {
        name: nothing | {key: int(value) for key, value in sums.items()} for name, sums in data.below("ending").items()
    }
    assert {name: sums for name, sums in found.items() if any(sums.values())} == expected


def _sums(records: Mapping[str, Mapping[str, str]], group: set[str]) -> dict[str, int]:
    return {key: sum(int(records[one][key]) for one in group) for key in ("memory_bytes", "cpu_millis")}


def _check_sessions(data: Data) -> None:
    places = {(session, slot): one for session, slots in data.below("session").items() for slot, one in slots.items()}
    records = data.records
    expected = {
        (fields["session"], fields["slot"]): one
        for one, fields in records.items()
        if fields["session"] and fields["state"] in LEASED
    }
    assert places == expected
    assert len({fields["token"] for fields in records.values() if fields["holder"]}) == sum(
        bool(fields["holder"]) for fields in records.values()
    )


def _check_pools(data: Data) -> None:
    pools: defaultdict[str, set[str]] = defaultdict(set)
    pooled: defaultdict[str, set[str]] = defaultdict(set)
    for one, fields in data.records.items():
        if not fields["holder"] and fields["state"] in COUNTED:
            pooled[fields["spec_key"]].add(one)
            if fields["state"] == "READY":
                pools[fields["spec_key"]].add(one)
    assert {name: set(members) for name, members in data.below("pool").items()} == pools
    assert data.below("pooled") == pooled
    assert set(pools) <= set(data.get("pools"))


def _check_queue(data: Data) -> None:
    waiting = set(data.get("queue_seen"))
    assert set(data.get("queue_wants")) == waiting
    callers: dict[str, str] = data.get("queue_lines")
    assert set(callers) == waiting
    lines: defaultdict[str, set[str]] = defaultdict(set)
    for ticket, caller in callers.items():
        lines[caller].add(ticket)
    assert {caller: set(line) for caller, line in data.below("queue").items()} == lines
    assert set(data.get("turns")) == set(lines)
    assert set(data.below("job_turns")) <= set(lines)


def _check_batches(data: Data) -> None:
    starts: dict[str, str] = data.get("batch_starts")
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for one, node in starts.items():
        assert data.records[one]["state"] in ("PENDING", "STARTING")
        assert data.records[one]["node"] == node
        nodes[node].add(one)
    assert {node: set(ids) for node, ids in data.below("batch_starting").items()} == nodes
