"""The kinds of `gpu.deckhouse.io/v1alpha1`: cards, the nodes they are in, the pools they serve."""

from croupier.api.gpu.device import GPUDevice
from croupier.api.gpu.node import GPUNodeInventory
from croupier.api.gpu.pool import GPUPool

__all__ = ["GPUDevice", "GPUNodeInventory", "GPUPool"]
