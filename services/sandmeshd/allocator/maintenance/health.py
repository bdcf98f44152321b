"""The health of the mesh as this allocator sees it."""

from __future__ import annotations

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.allocator.maintenance.store_monitor import StoreMonitor
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes
from sandmeshd.store import Store


class HealthReporter:
    """Report the health of the mesh from what is known already, without requests."""

    def __init__(self, store: Store, monitor: StoreMonitor, nodes: Nodes) -> None:
        self._store = store
        self._monitor = monitor
        self._nodes = nodes

    def report(self) -> pb.GetMeshHealthResponse:
        """Return problems, the health of each node, and the templates that are being prepared."""
        troubles = self._monitor.troubles()
        if not self._store.is_open:
            detail = "the store came back empty: records are being rebuilt, and nothing is made or deleted until then"
            troubles.append(pb.Trouble(part="records", blocks=True, detail=detail, fix="wait a moment"))
        for node in self._nodes.all:
            troubles += _troubles(node)
            troubles += self._nodes.preparations.broken.troubles(node)
        return pb.GetMeshHealthResponse(
            troubles=troubles,
            nodes=[_node_health(node) for node in self._nodes.all],
            preparations=self._nodes.preparations.progress(self._nodes.all),
        )


def _node_health(node: Node) -> pb.NodeHealth:
    driver = node.info.name if node.info else ""
    in_rotation = node.is_healthy and not node.breaker.is_open
    return pb.NodeHealth(name=node.name, node_id=node.node_id, driver=driver, in_rotation=in_rotation)


def _troubles(node: Node) -> list[pb.Trouble]:
    found: list[pb.Trouble] = []
    if not node.is_healthy:
        detail = f"it does not answer: {node.failure}" if node.failure else "it has not answered yet"
        found.append(_trouble(node, detail, "start its driver; after a grace time its sandboxes are lost"))
    if node.breaker.is_open:
        why = f": {node.breaker.reason}" if node.breaker.reason else ""
        detail = f"starts keep failing there; it is passed over for another {node.breaker.left:.0f} s{why}"
        found.append(_trouble(node, detail, "see the log of its driver"))
    if node.is_healthy and node.info is not None:
        found += [_reported(node, trouble) for trouble in node.info.troubles]
    return found


def _reported(node: Node, trouble: str) -> pb.Trouble:
    detail, _, fix = trouble.partition("; ")
    until = "until then sandboxes may not start there, and what they write may be refused"
    return _trouble(node, detail, "; ".join(filter(None, (fix, until))))


def _trouble(node: Node, detail: str, fix: str) -> pb.Trouble:
    return pb.Trouble(part="node", node_id=node.node_id or node.name, detail=detail, fix=fix)
