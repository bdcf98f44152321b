"""What MCP servers inside a sandbox request and report, passed on to the client of one MCP session."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, get_args

import structlog
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sandmesh.errors import WrongState

log = structlog.get_logger()

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
Notification = (
    types.LoggingMessageNotification
    | types.ResourceUpdatedNotification
    | types.ResourceListChangedNotification
    | types.PromptListChangedNotification
    | types.ElicitCompleteNotification
)
_NOTIFICATION: TypeAdapter[Notification] = TypeAdapter(Notification)
_REQUEST: TypeAdapter[types.CreateMessageRequest | types.ElicitRequest] = TypeAdapter(
    types.CreateMessageRequest | types.ElicitRequest
)


class _AnyResult(BaseModel):
    """A client's result as it came."""

    model_config = ConfigDict(extra="allow")


class ClientMessages:
    """Sends to a client what comes from servers, about the call under way where there is one."""

    def __init__(self) -> None:
        self.level: types.LoggingLevel | None = None
        """The lowest level of log messages that the client wants; None is all."""
        self.subscribed: set[str] = set()
        """The resources of servers whose changes the client wants."""
        self.client: ServerSession | None = None
        self._calls: list[ServerRequestContext[Any]] = []

    @property
    def capabilities(self) -> dict[str, Any]:
        """What of the client's capabilities servers inside may use."""
        declared = self.client.client_capabilities if self.client is not None else None
        if declared is None:
            return {}
        return declared.model_dump(by_alias=True, mode="json", exclude_none=True, include={"sampling", "elicitation"})

    @contextmanager
    def about(self, context: ServerRequestContext[Any]) -> Generator[None]:
        """Send what comes until the end of the block about a call."""
        self._calls.append(context)
        try:
            yield
        finally:
            self._calls.remove(context)

    async def on_request(self, server: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Pass on a request and return the client's result.

        Raises:
            WrongState: The client refused it, or it is invalid; the facts have the code of JSON-RPC.
        """
        session, request_id = self._channel()
        try:
            request = _REQUEST.validate_python({"method": method, "params": params})
            about = ServerMessageMetadata(related_request_id=request_id)
            result = await session.send_request(request, _AnyResult, metadata=about)
        except ValidationError as error:
            raise WrongState(f"{method} of {server!r} is invalid: {error}", _code(types.INVALID_PARAMS)) from None
        except MCPError as error:
            raise WrongState(error.message, _code(error.code)) from None
        return result.model_dump(mode="json")

    async def on_notification(self, server: str, method: str, params: dict[str, Any]) -> None:
        """Pass on a notification, if the client wants it."""
        if self.client is None:
            return
        try:
            sent = _NOTIFICATION.validate_python({"method": method, "params": params})
        except ValidationError as error:
            log.info("a notification of an MCP server is invalid", server=server, method=method, error=str(error))
            return
        if isinstance(sent, types.LoggingMessageNotification):
            if self.level is None or LEVELS.index(sent.params.level) >= LEVELS.index(self.level):
                named = sent.params.model_copy(update={"logger": sent.params.logger or server})
                session, request_id = self._channel()
                await session.send_notification(types.LoggingMessageNotification(params=named), request_id)
        elif not isinstance(sent, types.ResourceUpdatedNotification) or str(sent.params.uri) in self.subscribed:
            await self.client.send_notification(sent)

    def _channel(self) -> tuple[ServerSession, types.RequestId | None]:
        if self._calls:
            return self._calls[-1].session, self._calls[-1].request_id
        if self.client is None:
            raise WrongState("no MCP client is connected", _code(types.INTERNAL_ERROR))
        return self.client, None


def elicits(session: ServerSession) -> bool:
    """Return whether a client shows its user forms."""
    declared = session.client_capabilities
    offered = declared.elicitation if declared is not None else None
    # One that names no kind shows forms.
    return offered is not None and (offered.form is not None or offered.url is None)


async def ask_to_allow(session: ServerSession, request_id: types.RequestId | None, host: str) -> bool:
    """Ask a client's user whether the sandbox may reach a host from now on; what is not a yes is a no."""
    field = {"type": "boolean", "title": f"Allow {host}", "default": False}
    schema = {"type": "object", "properties": {"allow": field}, "required": ["allow"]}
    message = f"Code in the sandbox was refused {host}. Allow this sandbox to reach it from now on?"
    try:
        said = await session.elicit_form(message, schema, request_id)
    except MCPError as error:
        log.info("the client did not ask", host=host, error=error.message)
        return False
    return said.action == "accept" and (said.content or {}).get("allow") is True


def _code(code: int) -> dict[str, str]:
    return {"state": "REFUSED", "code": str(code)}
