"""Any allocation annotation is a grant, or refused with one sentence."""

from hypothesis import strategies as st

from croupier.api.mps import allocation
from tests.fuzz import inputs

GRANTED = [
    {"card": "a", "index": 0, "percent": 50},
    {"card": "b", "index": 1, "slices": 3},
    {"card": "c", "index": 2, "slots": ["s0", "s1"]},
]
TEXTS = inputs.json_bodies(GRANTED).map(lambda body: body.decode(errors="surrogateescape")) | inputs.WORDS


def test_an_annotation_is_read_or_refused(fuzz):
    def check(text: str) -> None:
        try:
            grant = allocation.decode(text)
        except ValueError as refusal:
            inputs.assert_is_sentence(str(refusal))
            return
        assert len({part.card for part in grant}) == len(grant)
        assert all((part.share > 0) != bool(part.slots) for part in grant)

    fuzz(TEXTS | st.just("[]"), check)
