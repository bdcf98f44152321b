"""The RPCs of SandboxService that are about nodes: the templates that these reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmeshd.allocator.nodes.node import Node
from sandmeshd.allocator.nodes.nodes import Nodes

Context = grpc.aio.ServicerContext[Any, Any]


class NodeTemplateServicer(sandbox_pb2_grpc.SandboxServiceServicer):
    """Serve the templates of the nodes; what derives from it serves the rest of SandboxService."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def ListTemplates(self, request: pb.ListTemplatesRequest, context: Context) -> pb.ListTemplatesResponse:
        """List the templates of the nodes."""
        return pb.ListTemplatesResponse(templates=list_templates(self._nodes.all))


def list_templates(nodes: Sequence[Node]) -> list[pb.Template]:
    """Return the templates of all nodes that have answered, by name."""
    listed: dict[str, pb.Template] = {}
    for node in sorted(nodes, key=lambda node: node.node_id or ""):
        for info in node.info.templates if node.info else ():
            listed.setdefault(info.name, _template(info)).nodes.append(_on_node(node, info))
    return [listed[name] for name in sorted(listed)]


def _template(info: driver_pb2.TemplateInfo) -> pb.Template:
    return pb.Template(
        name=info.name,
        description=info.description,
        tool_groups=info.tool_groups,
        limits=info.limits,
        network=info.network,
        network_fixed=info.network_fixed,
        image=info.image,
        system=info.system,
    )


def _on_node(node: Node, info: driver_pb2.TemplateInfo) -> pb.TemplateOnNode:
    driver = node.info.name if node.info else ""
    return pb.TemplateOnNode(node_id=node.node_id, driver=driver, prepared=info.prepared, generation=info.generation)
