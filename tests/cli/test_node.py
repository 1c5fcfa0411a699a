"""`croupier node` says what is wrong with its options before it starts anything."""

import subprocess

import pytest

from tests.cli.command import CROUPIER

MISTAKES = {
    "no cards": (
        ["--node", "a", "--cards", "simulated"],
        "--cards simulated: it is nvml, or simulated=MODEL:COUNT",
    ),
    "no such model": (["--node", "a", "--cards", "simulated=H1000:8"], "did you mean H100?"),
    "neither node nor fleet": (["--cards", "nvml"], "say either which --node, or which --fleet"),
    "a fleet of real cards": (
        ["--fleet", "a=b", "--cards", "nvml"],
        "--cards nvml: it is for a fleet simulated=MODEL:COUNT",
    ),
    "real cards described by us": (
        ["--node", "a", "--cards", "nvml", "--cdi", "."],
        "--cdi: it is for the simulated cards of one node",
    ),
    "no time": (["--node", "a", "--cards", "nvml", "--heartbeat", "0"], "--heartbeat 0: it is above 0"),
}


@pytest.mark.parametrize(("options", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_meant_is_said_in_a_sentence(options, sentence):
    ended = subprocess.run([*CROUPIER, "node", *options], capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr
