"""What the provider for Inspect uses of inspect_ai, which is not installed where this repository's types are checked.

Its tests run it with the real package, in an environment of its own.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, overload

from pydantic import BaseModel

T = TypeVar("T")
S = TypeVar("S", bound=SandboxEnvironment)

SandboxEnvironmentConfigType = BaseModel | str

@dataclass
class ExecResult(Generic[T]):
    success: bool
    returncode: int
    stdout: T
    stderr: T

class OutputLimitExceededError(Exception):
    def __init__(self, limit_str: str, truncated_output: str | None) -> None: ...

class SandboxUnavailableError(Exception): ...
class SandboxUserUnsupportedError(Exception): ...

class SandboxEnvironmentLimits:
    MAX_EXEC_OUTPUT_SIZE: int
    MAX_EXEC_OUTPUT_SIZE_STR: str
    MAX_READ_FILE_SIZE: int
    MAX_READ_FILE_SIZE_STR: str

class SandboxConnection(BaseModel):
    type: str
    command: str
    container: str | None = None

class SandboxEnvironment(abc.ABC):
    def __init__(self) -> None: ...
    def as_type(self, sandbox_cls: type[S]) -> S: ...
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]: ...
    @classmethod
    @abc.abstractmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None: ...
    @abc.abstractmethod
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - its name
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]: ...
    @abc.abstractmethod
    async def write_file(self, file: str, contents: str | bytes) -> None: ...
    @overload
    @abc.abstractmethod
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    @abc.abstractmethod
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

def sandboxenv(name: str) -> Callable[[type[S]], type[S]]: ...
