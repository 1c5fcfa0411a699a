"""`croupier market`: generate a trace, simulate it, and reject invalid input with clear errors."""

from pathlib import Path

import pytest

from tests.cli.env import croupier

EXAMPLE = Path(__file__).parents[2] / "examples/market/six-pods.csv"


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    plots = tmp_path_factory.mktemp("simulation") / "plots"
    return croupier("market", "simulate", str(EXAMPLE), "--out", str(plots)), plots


def test_simulate_compares_policies_and_writes_plots(simulation):
    answer, plots = simulation

    assert answer.code == 0, answer
    for name in ("no limits", "static limits", "recommender", "market", "market, strict"):
        assert name in answer.out
    assert "6 pods on a node with" in answer.out
    assert sorted(path.name for path in plots.iterdir()) == [
        "late.svg",
        "resizes.svg",
        "slack.svg",
        "throttling.svg",
    ]


def test_a_generated_trace_can_be_simulated():
    trace = croupier("market", "trace", "--pods", "3", "--minutes", "2", "--seed", "1")
    answer = croupier("market", "simulate", "-", "--capacity", "3", "-o", "json", stdin=trace.out)

    assert answer.code == 0, answer
    assert (answer.data["capacity"], answer.data["pods"], answer.data["seconds"]) == (3, 3, 120)
    assert answer.data["contenders"][0]["name"] == "no limits"
    assert {"lateLatencyPercent", "throttledPercent", "slackCPU", "resizesPerPodHour"} <= set(
        answer.data["contenders"][0]
    )


HEADER = "time,pod,class,demand\n"
REFUSED = {
    "an invalid line": (
        ["-"],
        HEADER + "0,a,latency,1\n1,a,latency,lots\n",
        'line 3: demand "lots" must be CPU',
    ),
    "a missing file": (["nowhere.csv"], "", "nowhere.csv: No such file or directory."),
    "no capacity": (["-", "--capacity", "0"], HEADER, "--capacity 0: must be 1 to 10000 CPUs."),
    "unknown output": (["-", "-o", "yaml"], HEADER, "--output yaml: must be table or json."),
}


@pytest.mark.parametrize(("args", "stdin", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_input_is_rejected_with_one_sentence(args, stdin, sentence):
    refused = croupier("market", "simulate", *args, stdin=stdin)

    assert refused.code == 2
    assert sentence in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_a_trace_needs_pods_and_minutes():
    assert "--pods 0: must be 1 to 1000." in croupier("market", "trace", "--pods", "0").err
    assert "--minutes 0: must be 1 to" in croupier("market", "trace", "--minutes", "0").err
