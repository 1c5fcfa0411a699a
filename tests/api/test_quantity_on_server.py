"""The canonical form of a quantity is the one that the API server writes."""

from croupier.api import kinds
from croupier.core import quantity
from croupier.kube.client.resource import Raw

WRITTEN = [
    *("0", "1", "1000m", "0.5", "0.0005", "1.5Gi", "0.5Ki", "1025.3Ki", "1e3", "1E4", "1e2", "20k", "20000"),
    *(
        "1E",
        "7n",
        "0.1n",
        "+2",
        ".5",
        "5.",
        "1024",
        "1Mi",
        "1048576",
        "12e6",
        "1234567",
        "0.1",
        "100u",
        "3e-3",
    ),
    *("1.000000001", "999999999n", "1Ei", "4096Ki", "1.25e1", "2.5M", "1500", "1500000m", "0.1e-9", "9e18"),
    *("9223372036854775808", "99Ei", "1e30"),
]


def a_pod(quantities: list[str]) -> Raw:
    """A pod with volume sizes, which are stored unchanged. Requests and limits would be rounded to milli."""
    volumes = [{"name": f"v{i}", "emptyDir": {"sizeLimit": written}} for i, written in enumerate(quantities)]
    return {
        "metadata": {"name": "quantities"},
        "spec": {"containers": [{"name": "c", "image": "none"}], "volumes": volumes},
    }


async def test_canonical_forms_agree(api, namespace):
    """The API server keeps some numbers as written. The numbers that it rewrites have the canonical form."""
    made = await api.create(kinds.PODS.raw, a_pod(WRITTEN), namespace=namespace, dry_run=True)

    sizes = [volume["emptyDir"]["sizeLimit"] for volume in made["spec"]["volumes"][: len(WRITTEN)]]
    rewritten = {ours: theirs for ours, theirs in zip(WRITTEN, sizes, strict=True) if ours != theirs}
    assert {written: str(quantity.parse(written)) for written in rewritten} == rewritten
    assert len(rewritten) > 10
