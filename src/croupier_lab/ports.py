"""Free ports on loopback.

The ports are below the ephemeral range: a component that restarts needs the same port, and a client that
reconnects to a closed port in the ephemeral range could get this port as its own and connect to itself.

A component listens a moment after its port was chosen. Until then nothing shows that the port is taken. So a
process does not choose a port again that it chose lately, and processes prefer different ports.
"""

import os
import random
import socket
from collections import deque
from pathlib import Path

LOWEST = 20_000
USUAL_EPHEMERAL_START = 32_768
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 200
STRIPES = 8
"""A process chooses every eighth port, beginning at a port that depends on its pid."""

_lately: deque[int] = deque(maxlen=500)


def free(count: int, *, chance: random.Random) -> tuple[int, ...]:
    """`count` different ports without a listener."""
    first, last = LOWEST, max(_ephemeral_start() - 1, LOWEST + 4_000)
    chosen: list[int] = []
    for _ in range(TRIES * count):
        port = first + STRIPES * chance.randrange((last - first) // STRIPES) + os.getpid() % STRIPES
        if port not in _lately and is_free(port):
            chosen.append(port)
            _lately.append(port)
        if len(chosen) == count:
            return tuple(chosen)
    raise OSError(f"no {count} free ports between {first} and {last}")


def is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return USUAL_EPHEMERAL_START
