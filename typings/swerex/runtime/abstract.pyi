"""What `sandmesh.integrations.swe_rex` uses of the package."""

import logging
from abc import ABC
from typing import Literal

from pydantic import BaseModel

class IsAliveResponse(BaseModel):
    is_alive: bool
    message: str = ""

class CreateBashSessionRequest(BaseModel):
    startup_source: list[str] = []
    session: str = "default"
    startup_timeout: float = 1.0

class CreateBashSessionResponse(BaseModel):
    output: str = ""

class BashAction(BaseModel):
    command: str
    session: str = "default"
    timeout: float | None = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: Literal["silent", "raise", "ignore"] = "raise"
    error_msg: str = ""
    expect: list[str] = []

class BashInterruptAction(BaseModel):
    session: str = "default"
    timeout: float = 0.2
    n_retry: int = 3
    expect: list[str] = []

class BashObservation(BaseModel):
    output: str = ""
    exit_code: int | None = None
    failure_reason: str = ""
    expect_string: str = ""

class CloseBashSessionRequest(BaseModel):
    session: str = "default"

class CloseBashSessionResponse(BaseModel): ...

class Command(BaseModel):
    command: str | list[str]
    timeout: float | None = None
    shell: bool = False
    check: bool = False
    error_msg: str = ""
    env: dict[str, str] | None = None
    cwd: str | None = None
    merge_output_streams: bool = False

class CommandResponse(BaseModel):
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None

class ReadFileRequest(BaseModel):
    path: str
    encoding: str | None = None
    errors: str | None = None

class ReadFileResponse(BaseModel):
    content: str = ""

class WriteFileRequest(BaseModel):
    content: str
    path: str

class WriteFileResponse(BaseModel): ...

class UploadRequest(BaseModel):
    source_path: str
    target_path: str

class UploadResponse(BaseModel): ...
class CloseResponse(BaseModel): ...

class AbstractRuntime(ABC):
    logger: logging.Logger
