"""The namespace of an installation."""

from typing import Final

DEFAULT_NAMESPACE: Final = "d8-gpu-operator"
"""The namespace of an installation unless another one is configured; the same as the chart's."""
