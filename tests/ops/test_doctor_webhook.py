"""The pod with which doctor asks whether the API server calls the webhook."""

from croupier.core.model import smallest_share
from croupier.core.pods.request_parser import PERCENT
from croupier.ops import doctor_webhook

LARGEST_SETTING = 100
"""The largest value of sharing.minPercent."""


def test_no_setting_of_the_smallest_share_refuses_the_pod_of_the_probe():
    (container,) = doctor_webhook.probe_pod("default")["spec"]["containers"]
    percent = int(container["resources"]["limits"][PERCENT])

    assert smallest_share.refusal(percent, LARGEST_SETTING) is None
    assert smallest_share.refusal(1, smallest_share.DEFAULT) is not None, "1 % is what it asked for before"
