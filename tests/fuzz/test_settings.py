"""Any settings document is accepted completely or refused with the path and sentence of every error."""

import json

import msgspec
import yaml
from hypothesis import strategies as st

from croupier.api import settings_state
from croupier.api.settings import Configuration
from croupier.api.settings_state import RejectedSettings
from tests.fuzz import inputs

DEFAULTS = json.loads(msgspec.json.encode(msgspec.to_builtins(Configuration())))
WRITTEN = {
    "capacityManager": "CRD",
    "highAvailability": False,
    "reservation": {"ttl": "5m"},
    "deviceApproval": {"mode": "Selector", "selector": {"matchLabels": {"a": "b"}}},
    "managedNodes": {"labelKey": "gpu", "enabledByDefault": True},
}
MODULE = {
    "apiVersion": "deckhouse.io/v1alpha1",
    "kind": "ModuleConfig",
    "spec": {"enabled": True, "settings": WRITTEN},
}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"settings.yaml": yaml.safe_dump(WRITTEN)}}
VALUES = {"settings": WRITTEN, "image": {"tag": "x"}}
KEYS = st.dictionaries(
    st.integers() | st.booleans() | st.none() | st.dates(), inputs.VALUES, min_size=1, max_size=3
)


def check(document: object) -> None:
    read = settings_state.read(document)

    if isinstance(read, RejectedSettings):
        assert read.problems
        for problem in read.problems:
            inputs.assert_is_sentence(str(problem))
    else:
        assert json.loads(msgspec.json.encode(read.configuration)) is not None


def test_a_document_is_accepted_or_refused(fuzz):
    fuzz(inputs.changed(WRITTEN, DEFAULTS, MODULE, CONFIG_MAP, VALUES), check)


def test_keys_of_yaml_that_are_no_text_are_refused(fuzz):
    fuzz(KEYS.map(lambda keys: {**keys, "reservation": keys}), check)


def test_the_settings_of_a_config_map_are_any_text(fuzz):
    texts = inputs.WORDS | inputs.nested().map(bytes.decode)
    fuzz(texts.map(lambda text: {**CONFIG_MAP, "data": {"settings.yaml": text}}), check)
