"""An informer: a store together with the reflector that fills it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from croupier.kube.controller import Cache
from croupier.kube.store import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    store: Store[T]
    cache: Cache
