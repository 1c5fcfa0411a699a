"""The kinds of `gpu.deckhouse.io/v1alpha1`: GPUDevice, GPUNodeInventory and GPUPool."""

from croupier.api.gpu.device import GPUDevice
from croupier.api.gpu.node import GPUNodeInventory
from croupier.api.gpu.pool import GPUPool

__all__ = ["GPUDevice", "GPUNodeInventory", "GPUPool"]
