"""TemplateService, as its proto specifies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.api.template.v1 import template_pb2_grpc
from sandmeshd.templates.catalog import TemplateCatalog

log = structlog.get_logger()


class TemplateServicer(template_pb2_grpc.TemplateServiceServicer):
    """Register templates in the mesh's catalog; `changed` is awaited after each change."""

    def __init__(self, catalog: TemplateCatalog, changed: Callable[[], Awaitable[None]]) -> None:
        self._catalog = catalog
        self._changed = changed

    async def RegisterTemplate(
        self, request: pb.RegisterTemplateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RegisterTemplateResponse:
        """Add a template, or replace one that was added by this."""
        definition = request.definition
        changed = self._catalog.add(definition, replaceable=True)
        if changed:
            log.info("a template was registered", template=definition.name, image=definition.image)
            await self._changed()
        generation = self._catalog[definition.name].generation
        return pb.RegisterTemplateResponse(generation=generation, changed=changed)
