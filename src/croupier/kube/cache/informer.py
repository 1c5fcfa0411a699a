"""An informer: a store together with the reflector that fills it."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from croupier.kube.cache.store import Store

T = TypeVar("T")


class Syncable(Protocol):
    """The part of a reflector that a reader waits for before it uses the store."""

    async def synced(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Informer(Generic[T]):
    store: Store[T]
    cache: Syncable
