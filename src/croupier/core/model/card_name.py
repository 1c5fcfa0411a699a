"""Names of GPUDevice objects.

A name is the node plus the PCI address: the index changes when another card is removed, and
the UUID when the board is replaced. Without a known PCI address the name uses the index.
"""

import re

NAME_LIMIT = 253

_INDEXED = re.compile(r"-gpu-[0-9]+$")


def inventory_id(node: str, pci_address: str) -> str:
    """The object name of a card: `node-1` and `0000:65:00.0` make `node-1-0000-65-00-0`."""
    where = re.sub(r"[^a-z0-9]+", "-", pci_address.casefold()).strip("-")
    return _checked_length(f"{node}-{where}", f"node {node} and PCI address {pci_address}")


def indexed_id(node: str, index: int) -> str:
    """The object name of a card without a known PCI address: `node-1` and 0 make `node-1-gpu-0`."""
    return _checked_length(f"{node}-gpu-{index}", f"node {node} and index {index}")


def is_indexed(card_id: str) -> bool:
    """Whether the name was made by `indexed_id`. Names made from PCI addresses never end in `-gpu-<n>`."""
    return _INDEXED.search(card_id) is not None


def _checked_length(name: str, made_of: str) -> str:
    if len(name) > NAME_LIMIT:
        raise ValueError(f"{made_of} make a name of {len(name)} characters; Kubernetes allows {NAME_LIMIT}")
    return name
