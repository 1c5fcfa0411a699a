"""What a contender's process has used since a moment, and how it tells the bench."""

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import psutil


@dataclass(frozen=True, slots=True)
class Meter:
    wall: float
    cpu: float
    memory: int

    @classmethod
    def start(cls) -> Self:
        gc.collect()
        return cls(time.perf_counter(), time.process_time(), psutil.Process().memory_info().rss)

    def read(self) -> dict[str, float]:
        """Seconds and MiB since the start; memory as it is once garbage is gone."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        gc.collect()
        memory = psutil.Process().memory_info().rss - self.memory
        return {"wall": wall, "cpu": cpu, "memory": memory / 2**20}


def report(**what: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def read_command() -> str:
    """The next line on stdin; empty at its end."""
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()
