"""YAML features beyond plain data are refused in the annotation, with a message of one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model import mig
from croupier.core.model.refusal import Refusal
from croupier.node.agent import mig_config
from tests.node.simulated_env import SimulatedCardsEnv

PRINTED = """
version: v1
mig-configs:
  selected:
  - devices: [0,1,2,3]
    mig-enabled: true
    mig-devices: [1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb, 1g.10gb]
"""


async def test_the_example_in_the_documentation_is_valid(tmp_path):
    sighting = await (await SimulatedCardsEnv(tmp_path, plan="SIM-70GB:4").start()).inspect()

    assert mig_config.targets(PRINTED, sighting.cards) == dict.fromkeys(range(4), mig.parse("1g.10gb:7"))


REFUSED = {
    "empty": ("", "the annotation must be a mapping"),
    "no YAML": ("a: [", "line 1: "),
    "a key twice": ("version: v1\nversion: v1\n", "line 2: the key 'version' appears twice"),
    "references": ("a: &a [1]\nb: *a\n", "line 2: references are not allowed"),
    "a list as a key": ("? [a]\n: 1\n", "unsupported characters, numbers or keys"),
    "a tag": ("!!python/object:os.system {}", "line 1: could not determine a constructor"),
    "endless depth": ("[" * 1_500, "nested too deeply"),
    "endless length": ("a" * 70_000, "70000 characters"),
    "an endless number": (f"devices: {'9' * 5_000}", "unsupported characters, numbers or keys"),
    "a tag without its value": ("devices: !!int ''", "unsupported characters, numbers or keys"),
    "a tag of another type": ("devices: !!bool x", "unsupported characters, numbers or keys"),
    "invisible characters": ("a: \x00", "unsupported characters, numbers or keys"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_annotations_are_refused(text, sentence):
    refused = mig_config.read(text)

    assert isinstance(refused, Refusal)
    assert sentence in str(refused)
    assert "\n" not in str(refused)


@given(st.text(alphabet="{}[]:,-&*!|>'\"#% \n\tav10gb.?", max_size=60))
def test_any_text_is_read_or_refused(text):
    result = mig_config.read(text)

    assert not isinstance(result, Refusal) or "\n" not in str(result)
