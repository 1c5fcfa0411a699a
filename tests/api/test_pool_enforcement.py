"""The API server accepts the enforcements that a mode can have. scenarios/api/gpupool.yaml has the others."""

import pytest

from croupier.api import kinds
from croupier.api.gpu import convert_pool

ACCEPTED = {
    "MPS without a choice": ({"mode": "MPS"}, "MPS"),
    "MPS by its daemon": ({"mode": "MPS", "enforcement": "MPS"}, "MPS"),
    "MPS by HAMi-core": ({"mode": "MPS", "enforcement": "HAMiCore"}, "HAMiCore"),
    "MPS by nothing": ({"mode": "MPS", "enforcement": "None"}, "None"),
    "whole cards": ({"mode": "Exclusive", "enforcement": "None"}, None),
    "time slices": ({"mode": "TimeSlice", "enforcement": "None"}, None),
    "MIG": ({"mode": "MIG", "migProfile": "1g.10gb", "enforcement": "None"}, None),
}


@pytest.mark.parametrize(("allocation", "enforcement"), ACCEPTED.values(), ids=ACCEPTED)
async def test_accepted_enforcements(api, crds, clean_cluster, allocation, enforcement):
    body = {"metadata": {"name": "shared"}, "spec": {"allocation": allocation}}

    created = await api.create(kinds.GPU_POOLS, body, dry_run=True)

    assert convert_pool.sharing(created.spec.allocation).enforcement == enforcement
