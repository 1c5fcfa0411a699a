"""Parsing a request never raises, never guesses and adds nothing."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.core.pods import request_parser
from croupier.core.quantity import NANO, Quantity

RESOURCES = st.sampled_from(
    [
        request_parser.GPU,
        request_parser.PERCENT,
        request_parser.LEDGER,
        f"{request_parser.MIG}1g.10gb",
        f"{request_parser.MIG}odd",
        f"{request_parser.POOL}a",
        f"{request_parser.POOL}b",
        "cpu",
    ]
)
REQUESTS = st.dictionaries(RESOURCES, st.integers(-NANO, 400 * NANO).map(Quantity), max_size=5)
COUNTS = st.dictionaries(RESOURCES, st.integers(0, 400).map(lambda n: Quantity(n * NANO)), max_size=3)
WRITTEN = st.one_of(st.text(), st.integers(-5, 200).map(str))
ANNOTATIONS = st.dictionaries(st.sampled_from([request_parser.CARDS, request_parser.RATIO, "other"]), WRITTEN)


@given(REQUESTS | COUNTS, ANNOTATIONS)
def test_any_input_gets_an_answer_on_one_line(requests, annotations):
    read = request_parser.read(requests, annotations)

    if isinstance(read, Refusal):
        assert read.reason.isprintable()
        assert len(read.reason) < 400
    else:
        assert all(_amount(want) >= 1 for want in read)


@given(COUNTS, ANNOTATIONS)
def test_the_parsed_request_adds_up_to_the_input(requests, annotations):
    read = request_parser.read(requests, annotations)
    if isinstance(read, Refusal):
        return

    counts = {name: amount.whole for name, amount in requests.items()}
    slots = sum(want.count for want in read if isinstance(want, MigDevices))
    units = sum(want.count for want in read if isinstance(want, PoolUnits))
    assert slots == counts.get(f"{request_parser.MIG}1g.10gb", 0)
    pool = counts.get(f"{request_parser.POOL}a", 0) + counts.get(f"{request_parser.POOL}b", 0)
    shares = sum(want.cards * want.percent for want in read if isinstance(want, CardShares) and not want.pool)
    whole = 100 * counts.get(request_parser.GPU, 0)
    if not {request_parser.CARDS, request_parser.RATIO} & annotations.keys():
        assert units == pool
        assert shares == whole + counts.get(request_parser.PERCENT, 0)
    elif counts.get(request_parser.PERCENT):
        assert shares == whole + counts[request_parser.PERCENT]


@given(st.integers(1, 32), st.integers(1, 100))
def test_every_allowed_share_can_be_requested(cards, ratio):
    said = {request_parser.CARDS: str(cards), request_parser.RATIO: str(ratio)}

    assert request_parser.read({}, said) == (CardShares(cards, ratio),)
    assert request_parser.read({request_parser.PERCENT: Quantity(cards * ratio * NANO)}, said) == (
        CardShares(cards, ratio),
    )


@given(st.text())
def test_only_plain_numbers_within_bounds_are_a_ratio(written):
    plain = written.isascii() and written.isdigit() and str(int(written)) == written
    allowed = plain and 1 <= int(written) <= 100

    assert isinstance(request_parser.read({}, {request_parser.RATIO: written}), Refusal) is not allowed


@given(COUNTS, ANNOTATIONS, st.randoms())
def test_the_order_of_the_input_does_not_matter(requests, annotations, dice):
    shuffled = list(requests.items())
    dice.shuffle(shuffled)

    assert request_parser.read(dict(shuffled), annotations) == request_parser.read(requests, annotations)


def _amount(want: CardShares | MigDevices | PoolUnits) -> int:
    return want.cards * want.percent if isinstance(want, CardShares) else want.count
