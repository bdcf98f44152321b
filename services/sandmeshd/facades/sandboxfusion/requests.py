"""What clients send, checked; what they leave out has SandboxFusion's own defaults."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import Fields

R = TypeVar("R", bound=BaseModel)


def _base64(value: str) -> str:
    try:
        b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("a file is base64") from None
    return value


def _encodable(value: str) -> str:
    if "\0" in value:
        raise ValueError("a path has no NUL")
    value.encode()
    return value


Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
Optional = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
Path = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_encodable)]
File = Annotated[str, AfterValidator(_base64)]


class _FusionRequest(Fields):
    files: dict[Path, File | None] = Field({})
    fetch_files: list[Path] = Field([])


class RunCodeRequest(_FusionRequest):
    """Runs a program."""

    code: str
    language: str
    stdin: str | None = None
    compile_timeout: Seconds = 10
    run_timeout: Seconds = 10
    memory_limit_MB: int = Field(default=0, ge=-1, le=1 << 20)  # noqa: N815 - as clients send it


class RunJupyter(_FusionRequest):
    """Runs cells, one after another, in one kernel."""

    cells: Annotated[list[str], Field(max_length=1000)]
    cell_timeout: Optional = 0
    total_timeout: Seconds = 45
    kernel: Literal["python3"] = "python3"


def read_request(kind: type[R], body: bytes) -> R:
    """Return a request.

    Raises:
        RequestError: It does not fit.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        (first, *_) = error.errors()
        raise RequestError(422, f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from None
