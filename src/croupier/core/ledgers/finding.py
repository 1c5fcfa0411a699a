"""A difference between what is written down and what is, in a sentence a person can act on."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

FindingClass: TypeAlias = Literal["Leak", "Ghost", "Overlap", "WrongCard", "Drift"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` is the class by which findings are counted; core/ledgers/audit.py says what each means."""

    kind: FindingClass
    message: str
    card: str = ""
    holder: str = ""
