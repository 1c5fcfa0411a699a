"""`croupier node` rejects invalid options before it starts."""

import pytest

from tests.cli.env import croupier

MISTAKES = {
    "no cards": (
        ["--node", "a", "--cards", "simulated"],
        "--cards simulated: must be nvml or simulated=MODEL:COUNT",
    ),
    "no such model": (["--node", "a", "--cards", "simulated=H1000:8"], "did you mean H100?"),
    "neither node nor fleet": (["--cards", "nvml"], "set either --node or --fleet"),
    "a fleet of real cards": (
        ["--fleet", "a=b", "--cards", "nvml"],
        "--cards nvml: with --fleet it must be simulated=MODEL:COUNT",
    ),
    "CDI files of real cards": (
        ["--node", "a", "--cards", "nvml", "--cdi", "."],
        "--cdi: only for the simulated cards of one node",
    ),
    "no heartbeat interval": (
        ["--node", "a", "--cards", "nvml", "--heartbeat", "0"],
        "--heartbeat 0: must be above 0",
    ),
}


@pytest.mark.parametrize(("options", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_invalid_options_are_rejected(options, sentence):
    ended = croupier("node", *options)

    assert ended.code == 2
    assert sentence in ended.err
