"""`croupier market run`, killed in the middle of a round: with the answer to its n-th write of a limit.

Run as `python -m tests.node.mortal N market run ...`: the command itself, only the moment is chosen here.
Writes of one round are under way together, so of those after the n-th nobody knows which arrived.
"""

import sys
from typing import Any

from croupier.cli import main
from croupier.kube.metrics import Metrics
from tests.proof.injection import WRITES, die


def mortal(number: int) -> None:
    answered, request = [], Metrics.request

    def told(self: Metrics, verb: str, resource: str, code: int, seconds: float) -> None:
        request(self, verb, resource, code, seconds)
        if verb in WRITES and resource.startswith("podallocations") and code < 300:
            answered.append(verb)
        if len(answered) == number:
            die()

    changed: Any = Metrics
    changed.request = told


if __name__ == "__main__":
    mortal(int(sys.argv.pop(1)))
    main()
