"""What PyYAML raises for foreign text, beyond its own YAMLError.

A tagged scalar that it cannot construct, such as `!!int ''`, `!!bool x` or the date 0000-00-00, raises
whatever the conversion raises.
"""

from typing import Final

INVALID_SCALARS: Final = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
