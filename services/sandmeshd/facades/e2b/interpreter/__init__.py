"""The code interpreter of E2B's clients: contexts are kernels of the sandbox, and executions are cells."""

from sandmeshd.facades.e2b.interpreter.service import answer

__all__ = ["answer"]
