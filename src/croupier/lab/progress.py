"""How far something is, shown to a person or a log file."""

from typing import Protocol


class Progress(Protocol):
    """Who wants to know."""

    def step(self, text: str) -> None:
        """An everyday step has begun."""

    def say(self, text: str) -> None:
        """Something out of the ordinary, or long, is going on."""


class Silent:
    def step(self, text: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass
