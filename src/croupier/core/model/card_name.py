"""Names of GPUDevice objects.

A name is the node plus the PCI address: the index changes when another card is removed, and
the UUID when the board is replaced. Without a known PCI address the name uses the index.
If that is too long for an object, a hash stands for the end of the node's name.
"""

import hashlib
import re
from typing import Final

NAME_LIMIT: Final = 253
"""Characters of an object name."""
LABEL_LIMIT: Final = 63
"""Characters of a label value."""

_HASH_LENGTH: Final = 16
_SUFFIX_LIMIT: Final = 64
_NODE_LIMIT: Final = NAME_LIMIT - _SUFFIX_LIMIT - 1
_INDEXED: Final = re.compile(r"-gpu-[0-9]+$")


def inventory_id(node: str, pci_address: str) -> str:
    """The object name of a card: `node-1` and `0000:65:00.0` make `node-1-0000-65-00-0`."""
    return with_suffix(node, re.sub(r"[^a-z0-9]+", "-", pci_address.casefold()).strip("-"))


def indexed_id(node: str, index: int) -> str:
    """The object name of a card without a known PCI address: `node-1` and 0 make `node-1-gpu-0`."""
    return with_suffix(node, f"gpu-{index}")


def is_indexed(card_id: str) -> bool:
    """Whether the name was made by `indexed_id`. Names made from PCI addresses never end in `-gpu-<n>`."""
    return _INDEXED.search(card_id) is not None


def with_suffix(node: str, suffix: str) -> str:
    full = f"{node}-{suffix}"
    if len(full) <= NAME_LIMIT:
        return full
    return f"{shortened(node, _NODE_LIMIT)}-{shortened(suffix, _SUFFIX_LIMIT)}"


def prefixes(node: str) -> tuple[str, str]:
    """The beginnings of the names of the node's cards: the node's name, or its short form."""
    return f"{node}-", f"{shortened(node, _NODE_LIMIT)}-"


def shortened(text: str, limit: int) -> str:
    """The text if it has at most `limit` characters, otherwise its beginning and a hash of all of it."""
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{text[: limit - _HASH_LENGTH - 1].rstrip('-.')}-{digest}"
