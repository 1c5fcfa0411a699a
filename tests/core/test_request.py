"""Parsing a request never raises, never guesses and adds nothing."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import request
from croupier.core.pods.want import Shares, Slots, Units
from croupier.core.quantity import NANO, Quantity

RESOURCES = st.sampled_from(
    [
        request.GPU,
        request.PERCENT,
        request.MARK,
        f"{request.MIG}1g.10gb",
        f"{request.MIG}odd",
        f"{request.POOL}a",
        f"{request.POOL}b",
        "cpu",
    ]
)
REQUESTS = st.dictionaries(RESOURCES, st.integers(-NANO, 400 * NANO).map(Quantity), max_size=5)
COUNTS = st.dictionaries(RESOURCES, st.integers(0, 400).map(lambda n: Quantity(n * NANO)), max_size=3)
WRITTEN = st.one_of(st.text(), st.integers(-5, 200).map(str))
ANNOTATIONS = st.dictionaries(st.sampled_from([request.CARDS, request.RATIO, "other"]), WRITTEN)


@given(REQUESTS | COUNTS, ANNOTATIONS)
def test_any_input_gets_an_answer_on_one_line(requests, annotations):
    read = request.read(requests, annotations)

    if isinstance(read, Refused):
        assert read.reason.isprintable()
        assert len(read.reason) < 400
    else:
        assert all(_amount(want) >= 1 for want in read)


@given(COUNTS, ANNOTATIONS)
def test_the_parsed_request_adds_up_to_the_input(requests, annotations):
    read = request.read(requests, annotations)
    if isinstance(read, Refused):
        return

    counts = {name: amount.whole for name, amount in requests.items()}
    slots = sum(want.count for want in read if isinstance(want, Slots))
    units = sum(want.count for want in read if isinstance(want, Units))
    assert slots == counts.get(f"{request.MIG}1g.10gb", 0)
    pool = counts.get(f"{request.POOL}a", 0) + counts.get(f"{request.POOL}b", 0)
    shares = sum(want.cards * want.percent for want in read if isinstance(want, Shares) and not want.pool)
    whole = 100 * counts.get(request.GPU, 0)
    if not {request.CARDS, request.RATIO} & annotations.keys():
        assert units == pool
        assert shares == whole + counts.get(request.PERCENT, 0)
    elif counts.get(request.PERCENT):
        assert shares == whole + counts[request.PERCENT]


@given(st.integers(1, 32), st.integers(1, 100))
def test_every_allowed_share_can_be_requested(cards, ratio):
    said = {request.CARDS: str(cards), request.RATIO: str(ratio)}

    assert request.read({}, said) == (Shares(cards, ratio),)
    assert request.read({request.PERCENT: Quantity(cards * ratio * NANO)}, said) == (Shares(cards, ratio),)


@given(st.text())
def test_only_plain_numbers_within_bounds_are_a_ratio(written):
    plain = written.isascii() and written.isdigit() and str(int(written)) == written
    allowed = plain and 1 <= int(written) <= 100

    assert isinstance(request.read({}, {request.RATIO: written}), Refused) is not allowed


@given(COUNTS, ANNOTATIONS, st.randoms())
def test_the_order_of_the_input_does_not_matter(requests, annotations, dice):
    shuffled = list(requests.items())
    dice.shuffle(shuffled)

    assert request.read(dict(shuffled), annotations) == request.read(requests, annotations)


def _amount(want: Shares | Slots | Units) -> int:
    return want.cards * want.percent if isinstance(want, Shares) else want.count
