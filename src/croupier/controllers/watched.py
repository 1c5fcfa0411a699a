"""A store together with what keeps it complete, as a controller needs both."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from croupier.kube.controller import Cache
from croupier.kube.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    store: Store[T]
    cache: Cache
