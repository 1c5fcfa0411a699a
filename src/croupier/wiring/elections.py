"""The Leases of the groups of controllers. Other parts read these names without importing the controllers."""

from typing import Final

INVENTORY: Final = "croupier-inventory"
BOOTSTRAP: Final = "croupier-bootstrap"
POOLS: Final = "croupier-pools"
LEDGER: Final = "croupier-manager"
LIMITS: Final = "croupier-cpu-limits"
