"""Any annotation run.ai/mig.config is a layout that fits the cards, or refused with one sentence."""

import json

import yaml
from hypothesis import strategies as st

from croupier.core.cards import catalogue
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.refusal import Refusal
from croupier.node.agent import mig_config
from tests.fuzz import inputs

LIST = {"devices": [0, 1], "mig-enabled": True, "mig-devices": ["1g.10gb"] * 7}
MAP = {"devices": "all", "mig-enabled": True, "mig-devices": {"2g.20gb": 2, "3g.40gb": 1}}
CARDS = [GpuCard(index, kinds=catalogue.find("SIM-70GB").kinds) for index in range(4)]
OFF = {"devices": [2], "mig-enabled": False}
SAMPLES = [{"version": "v1", "mig-configs": {"selected": entries}} for entries in ([LIST, OFF], [MAP])]
DOCUMENTS = inputs.changed(*SAMPLES)
TAGS = st.sampled_from(
    [
        "!!int 'x'",
        "!!timestamp 0000-00-00",
        "!!binary '*'",
        "&a [*a]",
        "? [1]\n: 2",
        "0b",
        "!!set {a}",
        ".inf",
        "1:99:99",
        "!!float 'x'",
        "!!int ''",
        "!!bool 'x'",
    ]
)
TEXTS = (
    DOCUMENTS.map(json.dumps)
    | DOCUMENTS.map(yaml.safe_dump)
    | inputs.mangled(DOCUMENTS.map(inputs.encoded)).map(lambda text: text.decode(errors="replace"))
    | TAGS
    | TAGS.map(lambda tag: f"version: v1\nmig-configs: {{selected: [{{devices: {tag}, mig-enabled: true}}]}}")
    | inputs.nested().map(bytes.decode)
    | inputs.WORDS
)


def test_an_annotation_is_read_or_refused(fuzz):
    def check(text: str) -> None:
        layouts = mig_config.targets(text, CARDS)

        if isinstance(layouts, Refusal):
            inputs.assert_is_sentence(str(layouts))
        else:
            assert layouts.keys() <= {card.index for card in CARDS}

    fuzz(TEXTS, check)
