"""Valid and invalid card requests, with the exact message of each refusal."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.core import quantity
from croupier.core.model.refusal import Refusal
from croupier.core.pods import request_parser

ROOT = Path(__file__).resolve().parents[3]
CASES = {
    f"{path.stem}: {case['name']}": case
    for path in sorted((ROOT / "scenarios/requests").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text())["cases"]
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_request_is_parsed_or_refused(case: dict[str, Any]):
    requests = {name: quantity.parse(written) for name, written in case.get("requests", {}).items()}

    read = request_parser.read(requests, case.get("annotations", {}))

    if "refused" in case:
        assert read == Refusal(case["refused"])
    else:
        assert not isinstance(read, Refusal), read
        assert [str(want) for want in read] == case["wants"]
