"""`croupier market run`, killed in the middle of a round: after the response to its n-th write of a limit.

Run it as `python -m tests.node.killed_market N market run ...`. The writes of one round are concurrent, so it
is unknown which of the writes after the n-th arrived.
"""

import sys
from typing import Any

from croupier.cli import main
from croupier.kube.serving.metrics import ProcessMetrics
from tests.proof.injection import WRITES, die


def killed_market(number: int) -> None:
    writes, request = [], ProcessMetrics.request

    def counting(self: ProcessMetrics, verb: str, resource: str, code: int, seconds: float) -> None:
        request(self, verb, resource, code, seconds)
        if verb in WRITES and resource.startswith("podallocations") and code < 300:
            writes.append(verb)
        if len(writes) == number:
            die()

    patched: Any = ProcessMetrics
    patched.request = counting


if __name__ == "__main__":
    killed_market(int(sys.argv.pop(1)))
    main()
