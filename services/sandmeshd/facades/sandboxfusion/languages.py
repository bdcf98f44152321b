"""The languages that clients name, and what runs each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
