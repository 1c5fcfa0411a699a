"""Whether the API server enforces the mark: always, but for the time in which Croupier is disabled.

While it is disabled no pod gets the mark, and a policy that requires it would refuse every pod that requests
nvidia.com/gpu, also those that another device plugin serves. The binding of the policy then only audits. A
binding that does not exist is not created, because the installation decides whether there is one.
"""

from collections.abc import Callable
from typing import Final

import structlog

from croupier.admission import mark_policy
from croupier.api.kinds import ADMISSION_POLICY_BINDINGS
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Raw
from croupier.kube.controller.control_loop import Controller
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "mark-policy"
ENFORCED: Final = ("Deny",)
AUDITED: Final = ("Audit",)

log = structlog.get_logger(__name__)


def patch(binding: Raw, *, disabled: bool) -> Raw:
    """A merge patch of the binding, guarded by its version; empty if it is as it must be."""
    wanted = list(AUDITED if disabled else ENFORCED)
    if binding["spec"].get("validationActions") == wanted:
        return {}
    guard = {"resourceVersion": binding["metadata"]["resourceVersion"]}
    return {"metadata": guard, "spec": {"validationActions": wanted}}


class MarkEnforcement:
    """Every replica of the webhook does this; the writes are guarded and idempotent."""

    def __init__(
        self,
        bindings: Informer[Raw],
        api: Client,
        *,
        disabled: Callable[[], bool],
        metrics: ControllerMetrics | None = None,
    ) -> None:
        self._store = bindings.store
        self._api = api
        self._disabled = disabled
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, metrics=metrics or ControllerMetrics()
        )
        self.controller.watch(bindings.store, bindings.cache, lambda binding: [binding["metadata"]["name"]])

    def settings_changed(self) -> None:
        self.controller.add(mark_policy.NAME)

    async def reconcile(self, name: str) -> Result:
        binding = self._store.named(name)
        disabled = self._disabled()
        if binding is not None and (change := patch(binding, disabled=disabled)):
            written = await self._api.patch(ADMISSION_POLICY_BINDINGS, name, change)
            self.controller.wrote(name, ADMISSION_POLICY_BINDINGS, written)
            log.info(
                f"the policy {name} {'only audits' if disabled else 'refuses'} pods without mark now",
                policy=name,
                disabled=disabled,
            )
        return DONE
