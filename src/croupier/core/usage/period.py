"""Reads a point in time as people write it: a span before now, a date, or a time."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from croupier.core.model.refusal import Refusal

_SPAN: Final = re.compile(r"([0-9]{1,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
FORMATS: Final = (
    "a span such as 90m, 24h, 7d or 4w, a date such as 2026-11-01, or a time such as 2026-11-01T10:00Z"
)


def parse(text: str, now: datetime) -> datetime | Refusal:
    """`7d` is seven days before `now`. A date begins at midnight, and times without a zone are UTC."""
    try:
        if span := _SPAN.fullmatch(text):
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        moment = datetime.fromisoformat(text)
    except ValueError:
        return Refusal(f"must be {FORMATS}", text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
