"""While Croupier is disabled, pods are admitted as they are, unless only Croupier can serve them."""

import pytest

from croupier.core.model.refusal import Refusal
from croupier.core.pods import disabled
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, RATIO
from tests.core.pods.test_ledger_resource import pod, spec

ADMITTED = {
    "nothing": (pod(), ""),
    "whole cards": (pod({GPU: "1"}), GPU),
    "MIG devices of an init container": (pod(early={f"{MIG}1g.10gb": "1"}), f"{MIG}1g.10gb"),
    "zero cards": (pod({GPU: "0"}), ""),
    "another vendor": (pod({"amd.com/gpu": "1"}), ""),
    "a mark by hand": (pod({LEDGER: "1"}), ""),
}


@pytest.mark.parametrize(("raw", "named"), ADMITTED.values(), ids=ADMITTED)
def test_pods_that_another_device_plugin_can_serve_are_admitted(raw, named):
    warning = disabled.decide(spec(raw))

    assert isinstance(warning, str)
    assert (disabled.DISABLED in warning) == bool(named)
    assert named in warning


REFUSED = {
    "percent": (pod({PERCENT: "50"}), PERCENT),
    "percent in addition to cards": (pod({GPU: "1"}, {PERCENT: "50"}), PERCENT),
    "an annotation": (pod(annotations={RATIO: "50"}), RATIO),
    "both annotations": (pod(annotations={CARDS: "2", RATIO: "50"}), CARDS),
}


@pytest.mark.parametrize(("raw", "named"), REFUSED.values(), ids=REFUSED)
def test_shares_are_refused(raw, named):
    refused = disabled.decide(spec(raw))

    assert isinstance(refused, Refusal)
    assert disabled.DISABLED in refused.reason
    assert f"only Croupier serves {named}" in refused.reason
