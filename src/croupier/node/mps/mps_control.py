"""Commands to the MPS control daemon of a card.

The program nvidia-cuda-mps-control reads commands from its standard input and passes them on through the pipe
directory. A daemon that hangs does not answer, so each command has a timeout.
"""

import asyncio
import os
import re
from contextlib import suppress
from typing import Final

from croupier.node.mps.mps_folder import CardFolder

PROGRAM: Final = "nvidia-cuda-mps-control"
COMMAND_TIMEOUT: Final = 5.0
"""Seconds that the daemon has for a command."""
_PARTITION: Final = re.compile(r"GPU-[^\s/]+/\S+")


class MpsError(Exception):
    """The daemon did not do what it was told. The message says why."""


class MpsControl:
    def __init__(self, program: str = PROGRAM, timeout: float = COMMAND_TIMEOUT) -> None:
        self._program = program
        self._timeout = timeout

    async def send(self, card: CardFolder, command: str) -> str:
        """The answer to a command."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._program,
                env={**os.environ, **card.environment},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise MpsError(f"cannot run {self._program}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout):
                output, _ = await process.communicate(f"{command}\n".encode())
        except TimeoutError as late:
            raise MpsError(f"the MPS daemon has not answered {command} for {self._timeout:g} s") from late
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        answer = output.decode(errors="replace").strip()
        if process.returncode:
            raise MpsError(f"the MPS daemon refused {command}: {answer or f'exit code {process.returncode}'}")
        return answer

    async def default_percentage(self, card: CardFolder) -> float:
        """The limit of clients that have none of their own. Also the check that the daemon answers."""
        answer = await self.send(card, "get_default_active_thread_percentage")
        try:
            return float(answer.split()[-1])
        except (IndexError, ValueError) as error:
            raise MpsError(f"the MPS daemon answered {answer!r} instead of a percentage") from error

    async def limit(self, card: CardFolder, percent: int, memory_mib: int) -> None:
        """Limit all clients that start from now on, of the running servers and of future ones."""
        servers = [word for word in (await self.send(card, "get_server_list")).split() if word.isdigit()]
        await self.send(card, f"set_default_active_thread_percentage {percent}")
        for server in servers:
            await self.send(card, f"set_active_thread_percentage {server} {percent}")
        if memory_mib:
            await self.send(card, f"set_default_device_pinned_mem_limit 0 {memory_mib}M")
            for server in servers:
                await self.send(card, f"set_device_pinned_mem_limit {server} 0 {memory_mib}M")

    async def total_chunks(self, card: CardFolder) -> int:
        """The number of chunks that static partitions of the card are made of."""
        for line in (await self.send(card, "lspart")).splitlines():
            words = line.split()
            if len(words) > 3 and card.uuid.startswith(words[0]) and words[1] == "-":
                return sum(int(word) for word in words[2:4] if word.isdigit())
        raise MpsError("the MPS daemon does not list the chunks of the card")

    async def add_partition(self, card: CardFolder, chunks: int) -> str:
        """The name of a new static partition."""
        answer = await self.send(card, f"sm_partition add {card.uuid} {chunks}")
        partition = _PARTITION.search(answer)
        if partition is None:
            raise MpsError(f"the MPS daemon created no partition of {chunks} chunks: {answer}")
        return partition.group()

    async def remove_partition(self, card: CardFolder, partition: str) -> None:
        await self.send(card, f"sm_partition rm {card.uuid} {partition.partition('/')[2]}")
