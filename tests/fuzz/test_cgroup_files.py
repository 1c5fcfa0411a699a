"""Any text of a cgroup file is a measurement or None."""

from hypothesis import strategies as st

from croupier.node.market import cgroup_files, cgroup_paths
from tests.fuzz import inputs

NUMBERS = st.integers(-1, 10**20).map(str) | st.sampled_from(
    ["max", "", "9" * 5_000, "٣", "+1", "0x1", " 5 "]
)
NAMES = st.sampled_from(["usage_usec", "throttled_usec", "throttled_time", "nr_periods", "nr_throttled"])
LINES = st.tuples(NAMES | inputs.WORDS, NUMBERS).map(" ".join)
STATS = st.lists(LINES, max_size=5).map("\n".join) | inputs.WORDS
PAIRS = st.tuples(NUMBERS, NUMBERS)


def test_statistics_are_whole_numbers(fuzz):
    def check(text: str) -> None:
        throttling = cgroup_files.throttling_v2(text)

        assert all(isinstance(number, int) for number in cgroup_files.pairs(text).values())
        assert min(throttling.throttled, throttling.periods, throttling.throttled_periods) >= 0
        for usage in (cgroup_files.usage_v2(text), cgroup_files.usage_v1(text)):
            assert usage is None or usage >= 0
        assert cgroup_files.throttling_v1(text) is None or "throttled_time" in text

    fuzz(STATS, check)


def test_a_quota_has_a_period(fuzz):
    def check(pair: tuple[str, str]) -> None:
        for quota in (cgroup_files.quota_v2(" ".join(pair)), cgroup_files.quota_v1(*pair)):
            assert quota is None or (quota.period > 0 and (quota.quota is None or quota.quota >= 0))

    fuzz(PAIRS, check)


def test_a_path_names_a_cgroup(fuzz):
    def check(text: str) -> None:
        assert "/" not in "".join(cgroup_paths.names(text))
        assert isinstance(cgroup_paths.container_id(text), str)

    fuzz(inputs.WORDS, check)
