"""Any line of a watch becomes one event, and the next line is read as if it had not been there."""

from croupier.api import kinds
from croupier.kube.client.watch_protocol import ObjectEvent, WatchDecoder
from tests.fuzz import inputs

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "team", "resourceVersion": "7", "labels": None},
    "spec": {"nodeName": "a", "containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
}
STATUS = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
SAMPLES = [{"type": kind, "object": POD} for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")]
GOOD = inputs.encoded(SAMPLES[0]) + b"\n"


def test_a_line_is_one_event_and_hides_no_other(fuzz):
    def check(body: bytes) -> None:
        line = body.replace(b"\n", b" ")
        events = WatchDecoder(kinds.PODS.type).feed(line + b"\n" + GOOD)

        assert len(events) == 1 + bool(line.strip())
        assert isinstance(events[-1], ObjectEvent)

    fuzz(inputs.json_bodies(*SAMPLES, {"type": "ERROR", "object": STATUS}), check)
