"""MIG profiles in the order of what they give.

Compute slices count first, memory second: a 3g.40gb is more than a 2g.20gb, a 1g.20gb more than a
1g.10gb. What comes with extras (`+me`) is a little more than the same without.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from croupier.core.pods import request

_LONGEST: Final = 80  # characters; the part of a resource's name after the slash has 63 at most
_SHAPE: Final = re.compile(
    r"(?:(?P<instance>[1-7])c\.)?(?P<slices>[1-7])g\.(?P<memory>[1-9][0-9]*)gb(?:\+(?P<extras>.+))?"
)
_SHARED: Final = "shared"


@dataclass(frozen=True, slots=True, order=True)
class Profile:
    """Compares by what it gives."""

    slices: int
    """Compute slices; of a compute instance (`1c.3g.40gb`) those of the instance."""
    memory: int
    """In GB as the name says it, which NVIDIA rounds up from GiB."""
    extras: tuple[str, ...] = ()
    name: str = ""
    resource: str = ""

    @property
    def is_its_own(self) -> bool:
        """Memory and slices are not shared with anybody: neither by time nor with other compute instances."""
        return "c." not in self.name and _SHARED not in self.extras


@lru_cache(maxsize=1024)
def read(resource: str) -> Profile | None:
    """The profile that `nvidia.com/mig-2g.20gb` stands for; None for anything else."""
    name = request.profile(resource) if len(resource) <= _LONGEST else None
    found = _SHAPE.fullmatch(name) if name is not None else None
    if name is None or found is None:
        return None
    extras = tuple(found["extras"].split(".")) if found["extras"] else ()
    return Profile(int(found["instance"] or found["slices"]), int(found["memory"]), extras, name, resource)
