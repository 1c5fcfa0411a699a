"""Why something is as it is: a stable code for programs and a sentence for people."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """`code` is one CamelCase word."""

    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code


def parse(text: str) -> Reason:
    """Parse the text of a Reason."""
    code, _, message = text.partition(": ")
    return Reason(code, message)
