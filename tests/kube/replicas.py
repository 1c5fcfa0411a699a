"""Replicas of the example operator as real processes, which can be started, frozen and killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from croupier_lab import process
from tests.kube import example_operator
from tests.polling import until, until_async

ROOT = Path(__file__).parents[2]


@dataclass
class Replica:
    name: str
    log: Path
    child: "subprocess.Popen[bytes]"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def said(self, message: str) -> bool:
        return any(message in line["message"] for line in self.lines())

    async def address(self) -> str:
        def look() -> str:
            assert self.child.poll() is None, f"{self.name} has ended:\n{self.log.read_text()}"
            return next((line["address"] for line in self.lines() if "address" in line), "")

        return await until(look, f"{self.name} to listen")

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://{await self.address()}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def ready(self) -> None:
        async def look() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await until_async(look, f"{self.name} to be ready")

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of all series of that name with those labels."""
        total = 0.0
        for line in (await self.get("/metrics"))[1].splitlines():
            match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if match and all(f'{key}="{value}"' in (match[1] or "") for key, value in labels.items()):
                total += float(match[2])
        return total

    async def leads(self) -> bool:
        return await self.metric("croupier_leader") == 1

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.child.pid, how)

    def freeze(self) -> None:
        process.suspend(psutil.Process(self.child.pid))

    async def ended(self) -> int:
        await until(lambda: self.child.poll() is not None, f"{self.name} to end")
        return self.child.returncode


@contextlib.contextmanager
def replica_factory(kubeconfig: Path, namespace: str, folder: Path) -> Iterator[Callable[[str], Replica]]:
    """A factory of replicas, which are killed at the end."""
    replicas: list[Replica] = []

    def start(name: str) -> Replica:
        log = folder / f"{name}.log"
        command = [sys.executable, "-m", example_operator.__name__, "--identity", name]
        command += ["--kubeconfig", str(kubeconfig), "--namespace", namespace]
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        replicas.append(Replica(name, log, child))
        return replicas[-1]

    try:
        yield start
    finally:
        for replica in replicas:
            replica.child.kill()
            replica.child.wait()
