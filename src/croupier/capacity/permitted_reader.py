"""Lists objects as far as the user's rights allow, so that a member of one namespace gets an answer too.

A refused list of a namespaced kind is repeated in the user's namespace. What stays unread is recorded as a
sentence, which the command prints with its answer.
"""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.errors import Forbidden, NotFound
from croupier.kube.client.resource import Resource

T = TypeVar("T")


@dataclass
class PermittedReader:
    api: Client
    namespace: str | None = None
    """The namespace of the user; None: a refused list is an error."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """What could not be read, as a sentence by the plural name of the kind."""

    async def objects(self, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
        """Empty if the kind is not installed."""
        try:
            return (await self.api.list(resource, selection)).items
        except NotFound:
            return []
        except Forbidden as refusal:
            if self.namespace is None:
                raise
            return await self._permitted(resource, selection, refusal)

    async def _permitted(self, resource: Resource[T], selection: Selection, refusal: Forbidden) -> list[T]:
        if not resource.namespaced:
            self.unreadable[resource.plural] = f"cannot list {resource.plural}: {refusal.message}"
            return []
        try:
            own = (await self.api.list(resource, replace(selection, namespace=self.namespace))).items
        except Forbidden as here:
            where = f"{resource.plural} in namespace {self.namespace}"
            self.unreadable[resource.plural] = f"cannot list {where}: {here.message}"
            return []
        others = f"{resource.plural} of other namespaces"
        self.unreadable[resource.plural] = f"cannot list {others}: {refusal.message}"
        return own
