from dataclasses import dataclass

@dataclass
class ExecResult:
    exit_code: int
    stdout: bytes
    stderr: bytes

class BackendBase:
    def abspath(self, path: str, *, cwd: str) -> str: ...
