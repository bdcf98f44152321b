"""What clients send, checked; what they leave out has SWE-ReX's own defaults."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import Fields

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=16 << 20)]


class CreateSession(Fields):
    """Starts a shell."""

    startup_source: list[Text] = Field([])
    session: str = "default"
    session_type: Literal["bash"] = "bash"
    startup_timeout: Seconds = 1.0


class BashAction(Fields):
    """Runs a command in a shell."""

    command: Text
    session: str = "default"
    timeout: Seconds | None = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: Literal["silent", "raise", "ignore"] = "raise"
    error_msg: Text = ""
    expect: list[Text] = Field([])
    action_type: Literal["bash"] = "bash"


class BashInterrupt(Fields):
    """Interrupts what runs in a shell."""

    session: str = "default"
    timeout: Seconds = 0.2
    n_retry: int = Field(default=3, ge=0, le=100)
    expect: list[Text] = Field([])
    action_type: Literal["bash_interrupt"]


class CloseSession(Fields):
    """Ends a shell."""

    session: str = "default"
    session_type: Literal["bash"] = "bash"


class CommandRequest(Fields):
    """Runs a command that no shell of the client's keeps."""

    command: Text | Annotated[list[Text], Field(min_length=1)]
    timeout: Seconds | None = None
    shell: bool = False
    check: bool = False
    error_msg: Text = ""
    env: dict[str, Text] | None = None
    cwd: str | None = None
    merge_output_streams: bool = False


class ReadFileRequest(Fields):
    """Reads a file."""

    path: str
    encoding: str | None = None
    errors: str | None = None


class WriteFileRequest(Fields):
    """Writes a file."""

    content: Text
    path: str


_ADAPTERS: Final[dict[str, TypeAdapter[Any]]] = {
    "create_session": TypeAdapter(CreateSession),
    "run_in_session": TypeAdapter(Annotated[BashAction | BashInterrupt, Field(discriminator="action_type")]),
    "close_session": TypeAdapter(CloseSession),
    "execute": TypeAdapter(CommandRequest),
    "read_file": TypeAdapter(ReadFileRequest),
    "write_file": TypeAdapter(WriteFileRequest),
}
METHODS: Final = tuple(_ADAPTERS)


def read_request(method: str, body: bytes) -> dict[str, Any]:
    """Return the body of a method's request, complete.

    Raises:
        RequestError: It does not fit.
    """
    try:
        found: BaseModel = _ADAPTERS[method].validate_json(body)
    except ValidationError as error:
        details = [{"loc": error["loc"], "msg": error["msg"], "type": error["type"]} for error in error.errors()[:10]]
        raise RequestError(422, f"{method}: {details[0]['msg']} ({'.'.join(map(str, details[0]['loc']))})") from None
    return found.model_dump()
