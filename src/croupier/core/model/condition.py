"""A condition as a decision wants it; controllers add times and generations."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class DesiredCondition:
    """The desired value of a condition."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
