"""A difference between the ledger and the cluster, with a message for the user."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

FindingClass: TypeAlias = Literal["Leak", "Ghost", "Overlap", "WrongCard", "Drift"]


@dataclass(frozen=True, slots=True)
class Finding:
    """core/ledgers/audit.py defines each `kind`."""

    kind: FindingClass
    message: str
    card: str = ""
    holder: str = ""
