"""What becomes of limits when nobody minds them any more.

An agent that is gone may have left a pod at the low point of its day. So after a while without a sign of
life whoever enforces limits gives every pod back at least what it came with.
"""

from typing import Final

from croupier.core.market.units import MINUTE

SILENT: Final = 2 * MINUTE
"""Without a sign of life for longer than this, an agent counts as gone."""


def limit(desired: int, original: int, *, silent_for: int, after: int = SILENT) -> int:
    return max(desired, original) if silent_for > after else desired
