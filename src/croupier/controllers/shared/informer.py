"""An informer: a store together with the reflector that fills it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from croupier.kube.cache.store import Store
from croupier.kube.controller.control_loop import Syncable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Informer(Generic[T]):
    store: Store[T]
    cache: Syncable
