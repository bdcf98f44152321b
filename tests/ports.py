"""Ports for servers that cannot choose one by themselves."""

from __future__ import annotations

import random
import socket

FIRST, LAST = 12_000, 31_999
"""Below those that a system gives to connections by itself, which could have one between its choice and its use."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of an address of this machine at which nobody listens."""
    dice = random.SystemRandom()
    while True:
        port = dice.randint(FIRST, LAST)
        with socket.socket() as one:
            try:
                one.bind((host, port))
            except OSError:
                continue
            return port
