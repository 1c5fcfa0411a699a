"""A change of settings is validated, and its effect (immediate or after a restart) is known."""

import pytest

from croupier.api import settings, settings_state
from croupier.api.settings_state import ActiveSettings, RejectedSettings, SettingsDiff


def config_map(text: str) -> dict[str, object]:
    return {"kind": "ConfigMap", "data": {"settings.yaml": text}}


def module(**spec: object) -> dict[str, object]:
    return {"kind": "ModuleConfig", "spec": spec}


READ = {
    "nothing at all": (None, ActiveSettings()),
    "an empty document": ({}, ActiveSettings()),
    "a ConfigMap": (config_map("logLevel: Debug"), ActiveSettings(settings.Configuration(log_level="Debug"))),
    "a ModuleConfig that is off": (module(enabled=False), ActiveSettings(enabled=False)),
    "a ModuleConfig without enabled": (module(), ActiveSettings()),
    "off, with settings": (
        module(enabled=False, settings={"logLevel": "Error"}),
        ActiveSettings(settings.Configuration(log_level="Error"), enabled=False),
    ),
}


@pytest.mark.parametrize(("document", "order"), READ.values(), ids=READ)
def test_settings_are_read_from_a_document(document, order):
    assert settings_state.read(document) == order


def test_a_refusal_names_every_error():
    refused = settings_state.read(module(settings={"logLevel": "Loud", "fallbak": {}}))

    assert isinstance(refused, RejectedSettings)
    assert [problem.path for problem in refused.problems] == ["fallbak", "logLevel"]
    assert "did you mean fallback?" in str(refused)


def test_a_config_map_without_settings_is_refused_not_taken_for_defaults():
    assert isinstance(settings_state.read({"kind": "ConfigMap", "data": {}}), RejectedSettings)


def wants(**written: object) -> settings.Configuration:
    return settings.read(written)


CHANGES = {
    "nothing": (wants(), wants(), wants(), SettingsDiff()),
    "immediate": (wants(), wants(), wants(logLevel="Debug"), SettingsDiff(at_once=("logLevel",))),
    "immediate, nested": (
        wants(),
        wants(),
        wants(fallback={"direction": "up"}),
        SettingsDiff(at_once=("fallback.direction",)),
    ),
    "after a restart": (
        wants(),
        wants(),
        wants(capacityManager="CRD"),
        SettingsDiff(later=("capacityManager",)),
    ),
    "both": (
        wants(),
        wants(),
        wants(capacityManager="CRD", logLevel="Error"),
        SettingsDiff(at_once=("logLevel",), later=("capacityManager",)),
    ),
    "an earlier change still needs a restart": (
        wants(),
        wants(capacityManager="CRD"),
        wants(capacityManager="CRD", logLevel="Error"),
        SettingsDiff(at_once=("logLevel",), later=("capacityManager",)),
    ),
    "reverted before a restart": (wants(), wants(capacityManager="CRD"), wants(), SettingsDiff()),
    "set for the first time": (
        wants(),
        wants(),
        wants(highAvailability=True),
        SettingsDiff(later=("highAvailability",)),
    ),
}


@pytest.mark.parametrize(("started", "before", "after", "news"), CHANGES.values(), ids=CHANGES)
def test_the_effect_of_a_change(started, before, after, news):
    assert settings_state.diff(before, after, started=started) == news


def in_config_map(text: object) -> dict[str, object]:
    return {"kind": "ConfigMap", "data": {"settings.yaml": text}}


UNREADABLE = {
    "a tag without its value": (in_config_map("logLevel: !!int ''"), "unsupported numbers, dates or keys"),
    "endless depth": (in_config_map("[" * 5_000), "nested too deeply"),
    "settings that are no text": (in_config_map({"logLevel": "Debug"}), "must be text"),
    "data that is no mapping": (
        {"kind": "ConfigMap", "data": ["a"]},
        "data of a ConfigMap must be a mapping",
    ),
    "a spec that is no mapping": (
        {"kind": "ModuleConfig", "spec": "a"},
        "spec of a ModuleConfig must be a mapping",
    ),
    "keys of several types": ({1: 2, "a": 3}, "the key 1 is not text; write it in quotes"),
    "a name of two lines": ({"a\nb": 1}, "a b: there is no such setting"),
    "a name without end": ({"reservation": {"a" * 70_000: {5: 1}}}, "the key 5 is not text"),
}


@pytest.mark.parametrize(("document", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_settings_are_rejected_in_one_line(document, sentence):
    rejected = settings_state.read(document)

    assert isinstance(rejected, RejectedSettings)
    assert sentence in str(rejected)
    assert "\n" not in str(rejected)
    assert len(str(rejected)) < 1_000
