"""A node with MPS: the supervisor as a process, the agent's side in this one, stand-ins for programs."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.sharing import Sharing
from croupier.core.nodes.mps_daemon import CardClients, ComputeMode, DaemonAction, Ready, Withhold
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership
from croupier.kube.serving import build_info
from croupier.node.cards.card_driver import CardError
from croupier.node.mps.mps_control import MpsControl
from croupier.node.mps.mps_daemons import CardDaemon, MpsDaemons
from croupier.node.mps.mps_folder import CardFolder, MpsFolder
from tests.cli.command import CROUPIER
from tests.node import nvml_env
from tests.node.simulated_env import OffsetClock
from tests.polling import until
from tests.wiring import first_lines

PROGRAM = Path(__file__).parent / "nvidia-cuda-mps-control"
CARD = "node-1-0000-10-00-0"
UUID = "GPU-00000000-0000-0000-0000-000000002331"
POOLED = PoolMembership("team", Sharing("MPS", enforcement="MPS"))
EXCLUSIVE = PoolMembership("team", Sharing("Exclusive"))


class Killed(Exception):
    """The agent is killed at this moment."""


def client(folder: Path) -> Path:
    """Build the stand-in of a CUDA program, without libraries, so that it runs in any container."""
    source = PROGRAM.with_name("mps_client.c")
    program = folder / "mps-client"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-static"]
    subprocess.run([nvml_env.compiler() or "cc", *flags, "-o", str(program), str(source)], check=True)
    return program


@dataclass
class CardModes:
    """The compute mode of the card, as NVML would keep it."""

    mode: ComputeMode = "Default"
    broken: str = ""

    async def compute_mode(self, _address: str) -> ComputeMode:
        if self.broken:
            raise CardError(self.broken)
        return self.mode

    async def set_compute_mode(self, _address: str, mode: ComputeMode) -> None:
        self.mode = mode


@dataclass
class Supervisor:
    """`croupier mps` as a process."""

    folder: Path
    process: asyncio.subprocess.Process | None = None

    async def starts(self) -> None:
        log = (self.folder.parent / "supervisor.log").open("a")
        words = ["mps", f"--folder={self.folder}", f"--control={PROGRAM}"]
        self.process = await asyncio.create_subprocess_exec(*CROUPIER, *words, stdout=log, stderr=log)
        log.close()
        await until(MpsFolder(self.folder).is_supervised, "the supervisor to run")
        first, *_ = first_lines.lines((self.folder.parent / "supervisor.log").read_text())
        expected = f"croupier mps {build_info.version()} starts and waits for requests in {self.folder}"
        assert first["message"] == expected

    async def dies(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@dataclass
class MpsEnv:
    folder: MpsFolder
    supervisor: Supervisor
    modes: CardModes = field(default_factory=CardModes)
    clock: OffsetClock = field(default_factory=OffsetClock)
    daemons: MpsDaemons = field(init=False)
    steps: list[DaemonAction] = field(default_factory=list)
    killed_after: int | None = None
    """The agent is killed after this number of steps."""

    def __post_init__(self) -> None:
        self.restarts_agent()

    def restarts_agent(self) -> None:
        """A new agent that remembers nothing."""
        control = MpsControl(str(PROGRAM), timeout=5.0)
        self.daemons = MpsDaemons(self.folder, control, self.modes, self.clock)
        taking = self.daemons._apply

        async def recorded(daemon: CardDaemon, action: DaemonAction) -> None:
            if self.killed_after is not None and len(self.steps) >= self.killed_after:
                raise Killed
            await taking(daemon, action)
            self.steps.append(action)

        self.daemons._apply = recorded  # type: ignore[method-assign]  # the agent dies between two steps

    @property
    def card(self) -> CardFolder:
        return self.folder.card(UUID)

    def order(self, text: str = "") -> None:
        """What the stand-in does from now on: hang, refuse, or exit at its start."""
        (self.folder.path / "order").write_text(text)

    def told(self) -> list[str]:
        """The commands that the daemon got."""
        return (self.card.log / "told").read_text().splitlines()

    def pid(self) -> int:
        record = self.card.record()
        assert record is not None
        return record.pid

    def kills_daemon(self) -> None:
        os.kill(self.pid(), signal.SIGKILL)

    def observe(self, pool: PoolMembership | None = POOLED, *, static: bool = False, **shares: int) -> None:
        """The card, its pool, and the shares that pods have of it."""
        card = NodeCard(CARD, GpuCard(0, address="0000:10:00.0", uuid=UUID, memory_mib=80000), pool=pool)
        self.daemons.observe({CARD: card}, {CARD: CardClients(shares)}, {CARD} if static else set())

    async def becomes(self, kind: type, says: str = "", **pod_shares: int) -> CardDaemon:
        """Let the agent work until its decision for the card is of this kind."""
        daemon = self.daemons.state(CARD)
        assert daemon is not None

        async def step() -> bool:
            await self.daemons._advance(daemon)
            reason = daemon.decision.reason if isinstance(daemon.decision, Withhold) else ""
            return isinstance(daemon.decision, kind) and says in reason

        for _ in range(500):
            if await step():
                return daemon
            await asyncio.sleep(0.1)
        raise AssertionError(f"the card is {daemon.decision} and not {kind.__name__} {says}")

    async def is_ready(self) -> CardDaemon:
        return await self.becomes(Ready)

    def connects(self, program: Path, **variables: str) -> subprocess.Popen[str]:
        """A client with the variables of the card's folder."""
        environment = {**self.card.environment, **variables}
        return subprocess.Popen([str(program)], env=environment, stdout=subprocess.PIPE, text=True)


def ends(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline().removeprefix("LIMIT="))["text"])


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def mps_env(folder: Path) -> AsyncIterator[MpsEnv]:
    supervisor = Supervisor(folder / "mps")
    await supervisor.starts()
    env = MpsEnv(MpsFolder(supervisor.folder), supervisor)
    try:
        yield env
    finally:
        await supervisor.dies()
        ends_processes(supervisor.folder)


def ends_processes(folder: Path) -> None:
    """End the daemons and servers of this folder, by what is in their environment."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = f"CUDA_MPS_PIPE_DIRECTORY={folder}".encode() in (process / "environ").read_bytes()
            if marked and b"nvidia-cuda-mps-" in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
