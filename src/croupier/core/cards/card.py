"""How a card is named.

The name is made of where the card sits, because that is what stays: its index
changes when a neighbour is removed, its UUID when the board is repaired. Where nobody
tells where the cards of a node sit, they are only counted, and named by index.
"""

import re

NAME_LIMIT = 253

_INDEXED = re.compile(r"-gpu-[0-9]+$")


def inventory_id(node: str, pci_address: str) -> str:
    """`node-1` and `0000:65:00.0` make `node-1-0000-65-00-0`, fit for the name of an object."""
    where = re.sub(r"[^a-z0-9]+", "-", pci_address.casefold()).strip("-")
    return _checked(f"{node}-{where}", f"node {node} and PCI address {pci_address}")


def indexed_id(node: str, index: int) -> str:
    """`node-1` and 0 make `node-1-gpu-0`: a card of which only its number is known."""
    return _checked(f"{node}-gpu-{index}", f"node {node} and index {index}")


def is_indexed(card_id: str) -> bool:
    """A PCI address ends in four groups of digits after the node, so the two kinds of name never meet."""
    return _INDEXED.search(card_id) is not None


def _checked(name: str, made_of: str) -> str:
    if len(name) > NAME_LIMIT:
        raise ValueError(f"{made_of} make a name of {len(name)} characters; Kubernetes allows {NAME_LIMIT}")
    return name
