"""A door for E2B's clients: their control plane, their agent's API and their code interpreter, over the public SDK.

The contract is what their published clients send and read; the door keeps no state but which processes it follows.
"""

from sandmeshd.facades.e2b.settings import E2bSettings

__all__ = ["E2bSettings"]
