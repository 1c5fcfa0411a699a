"""A lab as a test got it, and the way back there for the next test."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from croupier_lab import etcd_keys, process, record
from croupier_lab.errors import LabError
from croupier_lab.etcd_keys import Keys
from croupier_lab.lab import Lab
from croupier_lab.record import LabRecord, LabState

READY_TIMEOUT = 5.0
"""Seconds in which the API server must be ready, or the lab is not used again."""


@dataclass(frozen=True, slots=True)
class Pristine:
    """Its components may have been killed and restarted since."""

    record: LabRecord
    keys: Keys
    files: frozenset[Path]

    @classmethod
    def of(cls, lab: Lab) -> "Pristine":
        return cls(_without_processes(lab.record), lab.etcd_keys(), _files(lab))

    async def restore(self, lab: Lab) -> bool:
        """Stop what was started in the lab, and delete what was written. False if that was not possible."""
        guests = [part for part in lab.record.processes if part.name not in lab.record.parts]
        await asyncio.gather(*map(process.stop, guests))
        lab.remember(processes=tuple(part for part in lab.record.processes if part not in guests))
        if _without_processes(lab.record) != self.record or record.state(lab.record) is not LabState.RUNNING:
            return False
        try:
            await lab.ready(within=READY_TIMEOUT)
            added = etcd_keys.added(self.keys, lab.etcd_keys())
            if added is None:
                return False
            lab.etcd_delete(added)
        except (LabError, OSError):
            return False
        for path in _files(lab) - self.files:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return True


def _without_processes(lab_record: LabRecord) -> LabRecord:
    return msgspec.structs.replace(lab_record, processes=())


def _files(lab: Lab) -> frozenset[Path]:
    return frozenset((*lab.folder.iterdir(), *lab.logs.iterdir()))
