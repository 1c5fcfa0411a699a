"""A node with a fake NVIDIA driver: a libnvidia-ml.so.1 built from C, with cards in a text file.

It is used through the real nvidia-ml-py, so that every structure and every call is real.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.model.mig import MigProfile

CARDS = "CROUPIER_TEST_NVML_CARDS"
"""The environment variable with the path of the cards file."""
SOURCE = Path(__file__).parent / "nvml_library"
SONAME = "libnvidia-ml.so.1"

_NUMBERS = {19: 0, 14: 1, 9: 2, 5: 3, 0: 4, 20: 7, 15: 9}
"""NVML's number of a profile by its id, for cards of seven slices."""
_NUMBERS_OF_FOUR = {14: 0, 5: 1, 0: 3}


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Build the library. It takes seconds, so it is done once per process."""
    library = folder / SONAME
    sources = sorted(str(path) for path in SOURCE.glob("*.c"))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{SONAME}"]
    subprocess.run([compiler() or "cc", *flags, "-o", str(library), *sources, "-lpthread"], check=True)
    return library


@dataclass(frozen=True)
class NvmlEnv:
    """The cards file and the host folders that the NVML implementation reads."""

    library: Path
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "cards.txt"

    @property
    def host(self) -> Path:
        return self.folder / "host"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of processes that use these cards."""
        return {CARDS: str(self.file), "LD_LIBRARY_PATH": str(self.library.parent)}

    def install(self, *models: str) -> None:
        lines = ["driver 570.124.06", "cuda 12080"]
        for number, model in enumerate(models):
            lines += _card(number, catalogue.find(model))
        self.file.write_text("\n".join(lines) + "\n")
        for number in range(len(models)):
            kernel = self.host / f"sys/bus/pci/devices/0000:{0x10 + number:02x}:00.0"
            kernel.mkdir(parents=True, exist_ok=True)
            (kernel / "class").write_text("0x030200\n")
            (kernel / "numa_node").write_text(f"{number % 2}\n")

    def says(self) -> list[str]:
        return self.file.read_text().splitlines()

    @contextmanager
    def _changing(self) -> Iterator[list[str]]:
        """Edit the file while holding the lock of the library."""
        lock = os.open(f"{self.file}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self.says()
            yield lines
            draft = self.file.with_suffix(".edited")
            draft.write_text("\n".join(lines) + "\n")
            draft.replace(self.file)
        finally:
            os.close(lock)

    def value(self, card: int, key: str) -> str:
        """A value of a card, such as `mode`."""
        lines = self.says()
        begin = [number for number, line in enumerate(lines) if line == "card"][card]
        return next(line for line in lines[begin:] if line.split(" ")[0] == key).partition(" ")[2]

    def set(self, card: int, key: str, value: str) -> None:
        """Replace a value of a card, such as `lost` or `temperature`."""
        with self._changing() as lines:
            begin = [number for number, line in enumerate(lines) if line == "card"][card]
            at = next(n for n in range(begin, len(lines)) if lines[n].split(" ")[0] == key)
            lines[at] = f"{key} {value}"

    def add(self, card: int, line: str) -> None:
        """Add a line to a card, such as an incomplete GPU instance."""
        with self._changing() as lines:
            begin = [number for number, text in enumerate(lines) if text == "card"][card]
            lines.insert(begin + 1, line)

    def run(self, card: int, pid: int, cgroup: str, *, name: str = "python", kind: str = "C") -> None:
        """A process on the card, in this cgroup. `kind` may have a GPU instance: `C 1`."""
        proc = self.host / "proc" / str(pid)
        proc.mkdir(parents=True, exist_ok=True)
        (proc / "cgroup").write_text(f"0::{cgroup}\n")
        (proc / "comm").write_text(f"{name}\n")
        self.add(card, f"process {pid} {kind}")

    def end(self, pid: int) -> None:
        with self._changing() as lines:
            lines[:] = [line for line in lines if not line.startswith(f"process {pid} ")]

    def xid(self, card: int, number: int) -> None:
        with self._changing() as lines:
            lines.insert(0, f"xid {card} {number}")

    def fault(self, call: str, code: int = 0, *, count: int = 1, milliseconds: int = 0) -> None:
        """The next `count` calls of this function are slow, and fail if `code` is not 0."""
        with self._changing() as lines:
            lines.insert(0, f"fault {call} {code} {count} {milliseconds}")

    def no_faults(self) -> None:
        with self._changing() as lines:
            lines[:] = [line for line in lines if not line.startswith("fault ")]


def _card(number: int, model: CardModel) -> list[str]:
    capable = int(model.mig_capable)
    return [
        "card",
        f"name {model.product.replace('-', ' ', 1)}",
        f"uuid GPU-{number:08x}-0000-0000-0000-{int(model.pci_device, 16):012x}",
        f"bus 00000000:{0x10 + number:02X}:00.0",
        f"pci {model.pci_device}{catalogue.NVIDIA}",
        f"memory {model.memory_mib * 1024 * 1024}",
        f"compute {model.compute_major} {model.compute_minor}",
        f"minor {number}",
        f"mig {capable} 0 0 0",
        "lost 0",
        "temperature 34 90",
        "ecc 0 0",
        "mode 0",
        *(_profile(kind, len(model.kinds) == 3) for kind in model.kinds),
    ]


def _profile(kind: MigProfile, of_four: bool) -> str:
    numbers = _NUMBERS_OF_FOUR if of_four else _NUMBERS
    amounts = (
        numbers[kind.gpu_instance],
        kind.gpu_instance,
        kind.compute_slices,
        kind.most,
        kind.multiprocessors,
        kind.copy,
        kind.decoder,
        kind.encoder,
        0,
        kind.ofa,
        kind.memory_mib,
        kind.memory_slices,
    )
    starts = ",".join(str(start) for start in kind.starts)
    return f"profile {' '.join(str(amount) for amount in amounts)} {starts} MIG {kind.name}"
