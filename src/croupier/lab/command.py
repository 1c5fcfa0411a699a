"""Short programs whose output we need: ip, iptables, ctr, kubectl."""

import asyncio
import shlex

from croupier.lab.errors import LabError


async def output(*argv: str) -> str:
    """What the program printed; a LabError with its complaint if it failed or is not there."""
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
    printed, complaint = await running.communicate()
    if running.returncode != 0:
        said = (complaint or printed).decode(errors="replace").strip()
        raise LabError(f"`{shlex.join(argv)}` failed with {running.returncode}: {said or 'it said nothing'}")
    return printed.decode(errors="replace")
