"""The ConfigMap in which a pool tells the node agents its cards and its allocation."""

from typing import Final

NAME_PREFIX: Final = "gpupool-"
POOL_LABEL: Final = "gpu.deckhouse.io/pool"
"""The label with the name of the pool."""
IDS_KEY: Final = "inventoryIDs"
ALLOCATION_KEY: Final = "allocation"


def name(pool: str) -> str:
    return f"{NAME_PREFIX}{pool}"
