"""Points in time as people write them."""

from datetime import UTC, datetime, timedelta

import pytest

from croupier.core.model.refusal import Refusal
from croupier.core.usage import period

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)

RIGHT = {
    "90m": NOW - timedelta(minutes=90),
    "7d": NOW - timedelta(days=7),
    "4w": NOW - timedelta(weeks=4),
    "2026-11-01": datetime(2026, 11, 1, tzinfo=UTC),
    "2026-11-01T10:00Z": datetime(2026, 11, 1, 10, tzinfo=UTC),
    "2026-11-01T10:00+02:00": datetime(2026, 11, 1, 8, tzinfo=UTC),
}


@pytest.mark.parametrize(("text", "moment"), RIGHT.items(), ids=RIGHT)
def test_a_point_in_time(text, moment):
    assert period.parse(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "7", "7 days", "-7d", "999999d", "soon"])
def test_other_texts_are_refused(text):
    assert isinstance(period.parse(text, NOW), Refusal)
