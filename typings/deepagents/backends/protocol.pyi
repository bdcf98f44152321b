from dataclasses import dataclass

@dataclass
class ExecuteResponse:
    output: str
    exit_code: int | None = ...
    truncated: bool = ...

@dataclass
class FileDownloadResponse:
    path: str
    content: bytes | None = ...
    error: str | None = ...

@dataclass
class FileUploadResponse:
    path: str
    error: str | None = ...
