"""Any requests and annotations of a pod are a card request, or refused with one sentence."""

from hypothesis import strategies as st

from croupier.core.model.refusal import Refusal
from croupier.core.pods import request_parser
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO
from croupier.core.quantity import NANO, Quantity
from tests.fuzz import inputs

COUNTS = st.integers(-2, 300).map(lambda count: Quantity(count * NANO)) | st.integers().map(Quantity)
ODD = inputs.WORDS.filter(lambda word: len(word) <= 253)
"""No resource name is longer in Kubernetes."""
NAMES = st.sampled_from(
    [GPU, PERCENT, LEDGER, "cpu", f"{MIG}1g.10gb", f"{MIG}7g.80gb.me", f"{POOL}a", MIG, POOL]
)
REQUESTS = st.dictionaries(NAMES | ODD | ODD.map(MIG.__add__), COUNTS, max_size=4)
NUMBERS = st.integers(0, 200).map(str) | inputs.WORDS
ANNOTATIONS = st.dictionaries(st.sampled_from([CARDS, RATIO]) | inputs.WORDS, NUMBERS, max_size=3)


def test_a_pod_is_read_or_refused(fuzz):
    def check(pod: tuple[dict[str, Quantity], dict[str, str]]) -> None:
        requests, annotations = pod
        request = request_parser.read(requests, annotations)

        if isinstance(request, Refusal):
            inputs.assert_is_sentence(str(request))
        else:
            asked = {
                name for name, amount in requests.items() if amount and request_parser.is_card_resource(name)
            }
            assert bool(request) == bool(asked - {LEDGER} or annotations.keys() & {CARDS, RATIO})

    fuzz(st.tuples(REQUESTS, ANNOTATIONS), check)
