"""A difference between the ledger and the cluster, with a message for the user."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

FindingKind: TypeAlias = Literal["Leak", "Ghost", "Overlap", "WrongCard", "Drift", "Stranger"]


@dataclass(frozen=True, slots=True)
class LedgerFinding:
    """core/claims/audit.py defines each `kind`."""

    kind: FindingKind
    message: str
    card: str = ""
    holder: str = ""
