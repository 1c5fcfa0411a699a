"""How a card is named.

The name is made of where the card sits, because that is what stays: its index
changes when a neighbour is removed, its UUID when the board is repaired.
"""

import re

NAME_LIMIT = 253


def inventory_id(node: str, pci_address: str) -> str:
    """`node-1` and `0000:65:00.0` make `node-1-0000-65-00-0`, fit for the name of an object."""
    where = re.sub(r"[^a-z0-9]+", "-", pci_address.casefold()).strip("-")
    name = f"{node}-{where}"
    if len(name) > NAME_LIMIT:
        raise ValueError(
            f"node {node} and PCI address {pci_address} make a name of {len(name)} characters; "
            f"Kubernetes allows {NAME_LIMIT}"
        )
    return name
