"""Programs of clients: each in a new sandbox, which ends with it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, cast

from sandmesh import SandboxAsync
from sandmesh.errors import Unavailable
from sandmesh.events import Output
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.clients import MeshClients
from sandmeshd.facades.sandboxfusion.requests import RunCodeRequest


@dataclass(frozen=True)
class Language:
    """How the code of a language is run: its file, and the commands that compile and run it."""

    file: str
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()

    @property
    def needs(self) -> list[str]:
        """The programs that a sandbox must have for it."""
        return sorted({command[0] for command in (self.compile, self.run) if command and "/" not in command[0]})


LANGUAGES: Final[dict[str, Language]] = {
    "python": Language("main.py", ("python", "main.py")),
    "nodejs": Language("main.js", ("node", "main.js")),
    "typescript": Language("main.ts", ("node", "--experimental-strip-types", "--no-warnings", "main.ts")),
    "bash": Language("main.sh", ("bash", "main.sh")),
    "cpp": Language("main.cpp", ("./main",), ("g++", "-std=c++17", "-O2", "main.cpp", "-o", "main")),
    "go": Language("main.go", ("./main",), ("go", "build", "-o", "main", "main.go")),
    "java": Language("Main.java", ("java", "Main"), ("javac", "Main.java")),
    "rust": Language("main.rs", ("./main",), ("rustc", "-O", "main.rs", "-o", "main")),
    "perl": Language("main.pl", ("perl", "main.pl")),
    "ruby": Language("main.rb", ("ruby", "main.rb")),
    "php": Language("main.php", ("php", "main.php")),
    "lua": Language("main.lua", ("lua", "main.lua")),
    "R": Language("main.R", ("Rscript", "main.R")),
    "julia": Language("main.jl", ("julia", "main.jl")),
    "racket": Language("main.rkt", ("racket", "main.rkt")),
}

UNSUPPORTED: Final = frozenset(
    {
        *("python2", "go_test", "csharp", "sql", "cuda", "D_ut", "scala", "pytest", "junit", "kotlin_script", "jest"),
        *("verilog", "python_gpu", "lean", "swift", "gtest", "react"),
    }
)
"""Languages of SandboxFusion that nothing here runs."""


_PACKAGE: Final = "sandmeshd.facades.sandboxfusion"
_MOST_REPLY: Final = 64 << 20
_MARGIN_SECONDS: Final = 30.0
_PROBE_SECONDS: Final = 30.0


class SandboxPool:
    """Sandboxes of one template, each for one request."""

    def __init__(self, clients: MeshClients, template: str) -> None:
        self._clients = clients
        self._template = template

    @asynccontextmanager
    async def sandbox(self, key: str, seconds: float) -> AsyncGenerator[SandboxAsync]:
        """Yield a new sandbox of a key's user; it ends with the block, or after the seconds and some more."""
        ttl = seconds + 2 * _MARGIN_SECONDS
        async with SandboxAsync(
            timeout=seconds + _MARGIN_SECONDS,
            base_url=self._clients.address,
            bearer_token=self._clients.token(key),
            sandbox_type=self._template,
            ttl=ttl,
            labels={"sandboxfusion": "run"},
        ) as box:
            yield box

    async def languages(self, key: str) -> dict[str, bool]:
        """Return whether each language can be run."""
        programs = sorted({name for language in LANGUAGES.values() for name in language.needs})
        async with self.sandbox(key, _PROBE_SECONDS) as box:
            found = await _perform(box, {"probe": programs})
        return {name: all(found.get(need) for need in LANGUAGES[name].needs) for name in LANGUAGES}

    async def run(self, key: str, request: RunCodeRequest) -> dict[str, Any]:
        """Compile and run a program.

        Raises:
            RequestError: Its language is not run here.
            SandmeshError: No sandbox could be created for it.
        """
        language = _language(request.language)
        files = {name: content for name, content in request.files.items() if content is not None}
        files[language.file] = base64.b64encode(request.code.encode(errors="surrogatepass")).decode()
        order = {
            "needs": language.needs,
            "files": files,
            "fetch_files": request.fetch_files,
            "compile": language.compile,
            "run": language.run,
            "stdin": request.stdin,
            "compile_timeout": request.compile_timeout,
            "run_timeout": request.run_timeout,
            "memory": max(0, request.memory_limit_MB) << 20,
        }
        async with self.sandbox(key, request.compile_timeout + request.run_timeout) as box:
            reply = await _perform(box, order)
            if reply.get("missing"):
                missing = ", ".join(map(str, reply["missing"]))
                fix = "SANDMESH_SANDBOXFUSION_TEMPLATE names the template that runs code"
                raise RequestError(501, f"{request.language}: the sandboxes have no {missing}; {fix}")
            if "refused" in reply:
                raise RequestError(400, str(reply["refused"])[:1000])
            return {**reply, "executor_pod_name": box.sandbox_id}


def _language(name: str) -> Language:
    if name in LANGUAGES:
        return LANGUAGES[name]
    known = ", ".join(LANGUAGES)
    status = 501 if name in UNSUPPORTED else 422
    raise RequestError(status, f"{name[:100]!r} is not run here; choose from {known}")


async def _perform(box: SandboxAsync, order: dict[str, Any]) -> dict[str, Any]:
    source = resources.files(_PACKAGE).joinpath("runner.py").read_text("utf-8")
    out, errors = bytearray(), bytearray()
    async with await box.processes.start(["python", "-I", "-c", source]) as process:
        await process.write(json.dumps(order))
        await process.close_stdin()
        async for event in process:
            if isinstance(event, Output):
                (out if event.stream == "stdout" else errors).extend(event.data)
            if len(out) + len(errors) > _MOST_REPLY:
                break
    try:
        reply: object = json.loads(out)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        said = bytes(errors[-1000:]).decode(errors="replace")
        raise Unavailable(f"the sandbox did not answer as it should: {said or 'its runner was killed'}")
    return cast("dict[str, Any]", reply)
