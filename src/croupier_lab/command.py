"""Run short programs and return their output: ip, iptables, ctr, kubectl."""

import asyncio
import shlex

from croupier_lab.errors import LabError


async def output(*argv: str) -> str:
    """The stdout of the program; raises a LabError with its stderr if it fails or is not installed."""
    try:
        running = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise LabError(
            f"{argv[0]} is not installed, or not on PATH; `make setup` installs what the lab needs."
        ) from None
    stdout, stderr = await running.communicate()
    if running.returncode != 0:
        message = (stderr or stdout).decode(errors="replace").strip() or "no output"
        raise LabError(f"`{shlex.join(argv)}` failed with exit code {running.returncode}: {message}")
    return stdout.decode(errors="replace")
