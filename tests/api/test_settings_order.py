"""A change of settings is validated, and its effect (immediate or after a restart) is known."""

import pytest

from croupier.api import settings, settings_order
from croupier.api.settings_order import News, Order, Refused


def config_map(text: str) -> dict[str, object]:
    return {"kind": "ConfigMap", "data": {"settings.yaml": text}}


def module(**spec: object) -> dict[str, object]:
    return {"kind": "ModuleConfig", "spec": spec}


READ = {
    "nothing at all": (None, Order()),
    "an empty document": ({}, Order()),
    "a ConfigMap": (config_map("logLevel: Debug"), Order(settings.Configuration(log_level="Debug"))),
    "a ModuleConfig that is off": (module(enabled=False), Order(enabled=False)),
    "a ModuleConfig without enabled": (module(), Order()),
    "off, with settings": (
        module(enabled=False, settings={"logLevel": "Error"}),
        Order(settings.Configuration(log_level="Error"), enabled=False),
    ),
}


@pytest.mark.parametrize(("document", "order"), READ.values(), ids=READ)
def test_settings_are_read_from_a_document(document, order):
    assert settings_order.read(document) == order


def test_a_refusal_names_every_error():
    refused = settings_order.read(module(settings={"logLevel": "Loud", "fallbak": {}}))

    assert isinstance(refused, Refused)
    assert [problem.path for problem in refused.problems] == ["fallbak", "logLevel"]
    assert "did you mean fallback?" in str(refused)


def test_a_config_map_without_settings_is_refused_not_taken_for_defaults():
    assert isinstance(settings_order.read({"kind": "ConfigMap", "data": {}}), Refused)


def wants(**written: object) -> settings.Configuration:
    return settings.read(written)


CHANGES = {
    "nothing": (wants(), wants(), wants(), News()),
    "immediate": (wants(), wants(), wants(logLevel="Debug"), News(at_once=("logLevel",))),
    "immediate, nested": (
        wants(),
        wants(),
        wants(fallback={"direction": "up"}),
        News(at_once=("fallback.direction",)),
    ),
    "after a restart": (wants(), wants(), wants(capacityManager="CRD"), News(later=("capacityManager",))),
    "both": (
        wants(),
        wants(),
        wants(capacityManager="CRD", logLevel="Error"),
        News(at_once=("logLevel",), later=("capacityManager",)),
    ),
    "an earlier change still needs a restart": (
        wants(),
        wants(capacityManager="CRD"),
        wants(capacityManager="CRD", logLevel="Error"),
        News(at_once=("logLevel",), later=("capacityManager",)),
    ),
    "reverted before a restart": (wants(), wants(capacityManager="CRD"), wants(), News()),
    "set for the first time": (
        wants(),
        wants(),
        wants(highAvailability=True),
        News(later=("highAvailability",)),
    ),
}


@pytest.mark.parametrize(("started", "before", "after", "news"), CHANGES.values(), ids=CHANGES)
def test_the_effect_of_a_change(started, before, after, news):
    assert settings_order.news(before, after, started=started) == news
