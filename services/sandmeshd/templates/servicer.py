"""TemplateService, as its proto specifies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.api.template.v1 import template_pb2_grpc
from sandmeshd.templates.book import TemplateBook

log = structlog.get_logger()


class TemplateServicer(template_pb2_grpc.TemplateServiceServicer):
    """Adds templates to a mesh's own; `changed` lets those know who remember templates."""

    def __init__(self, book: TemplateBook, changed: Callable[[], Awaitable[None]]) -> None:
        self._book = book
        self._changed = changed

    async def RegisterTemplate(
        self, request: pb.RegisterTemplateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RegisterTemplateResponse:
        """Add a template, or replace one that was added by this."""
        definition = request.definition
        changed = self._book.add(definition, replaceable=True)
        if changed:
            log.info("a template was registered", template=definition.name, image=definition.image)
            await self._changed()
        generation = self._book[definition.name].generation
        return pb.RegisterTemplateResponse(generation=generation, changed=changed)
