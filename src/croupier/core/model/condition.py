"""A condition as a decision wants it; controllers add times and generations."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    type: str
    status: ConditionStatus
    reason: str
    message: str

    @property
    def holds(self) -> bool:
        return self.status == "True"
