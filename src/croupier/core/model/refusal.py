"""Why a request is refused, in the sentence that status, Events, command line and page show."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request. `reason` names neither node nor card, so that equal reasons can be counted."""

    reason: str
    detail: str = ""
    """The cards that lack capacity, and how much."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason
