"""Settings: every error by its path, defaults as promised, and what a change needs to count."""

import pytest

from croupier.api import settings, settings_check, settings_page, settings_source
from croupier.api.settings import Configuration

PROMISED = {
    "highAvailability": "",
    "managedNodes.labelKey": "gpu.deckhouse.io/enabled",
    "managedNodes.enabledByDefault": "true",
    "deviceApproval.mode": "Manual",
    "deviceApproval.selector": "",
    "scheduling.defaultStrategy": "Spread",
    "scheduling.topologyKey": "topology.kubernetes.io/zone",
    "inventory.resyncPeriod": "30s",
    "reservation.ttl": "120s",
    "capacityManager": "InMemory",
    "fallback.direction": "nearest",
    "fallback.minMemory": "",
    "fallback.preferAvailable": "false",
    "fallback.whenNothingFits": "Admit",
    "maintenance.deadline": "1h",
    "alerts.capacityLow.percent": "10",
    "alerts.capacityLow.for": "10m",
    "alerts.nodeWithoutPool.for": "30m",
    "monitoring.serviceMonitor": "true",
    "logLevel": "Info",
    "https.mode": "SelfSigned",
}

WRONG = {
    "a word for yes": ({"highAvailability": "yes"}, "highAvailability: 'yes' must be true or false"),
    "a slip of the pen": (
        {"fallback": {"direcion": "up"}},
        "fallback.direcion: there is no such setting; did you mean direction?",
    ),
    "none of the words": (
        {"fallback": {"direction": "sideways"}},
        "fallback.direction: 'sideways' is none of down, nearest, off, up",
    ),
    "a time in words": (
        {"reservation": {"ttl": "2 minutes"}},
        "reservation.ttl: '2 minutes' must be written as 90s",
    ),
    "too much": (
        {"alerts": {"capacityLow": {"percent": 101}}},
        "alerts.capacityLow.percent: 101 is out of range: 0 to 100",
    ),
    "a selector that is missing": (
        {"deviceApproval": {"mode": "Selector"}},
        "deviceApproval.selector: mode Selector needs",
    ),
    "two that contradict": (
        {"highAvailability": True, "capacityManager": "InMemory"},
        "capacityManager: highAvailability keeps the ledger in the API server",
    ),
    "no tree at all": ([1], "settings: [1] must be a group of settings"),
}


@pytest.mark.parametrize(("data", "sentence"), WRONG.values(), ids=WRONG)
def test_an_error_says_where_and_what_is_allowed(data, sentence):
    assert [str(one) for one in settings_check.problems(data) if str(one).startswith(sentence)]


def test_every_error_is_told_at_once():
    together: dict[str, object] = {
        "fallback": {"direction": "sideways"},
        "reservation": {"ttl": "soon"},
        "logLevel": "Loud",
    }

    assert [one.path for one in settings_check.problems(together)] == [
        "fallback.direction",
        "logLevel",
        "reservation.ttl",
    ]


def test_nothing_set_is_as_promised():
    assert settings_check.problems({}) == []
    assert {row.path: row.default for row in settings_page.rows()} == PROMISED
    assert settings.read({}) == Configuration()


def test_two_of_everything_need_the_shared_book():
    assert settings.read({}).book == "InMemory"
    assert settings.read({"highAvailability": True}).book == "CRD"


def test_what_needs_a_new_start_is_named_and_nothing_else():
    changed = settings.read(
        {"capacityManager": "CRD", "logLevel": "Debug", "maintenance": {"deadline": "2h"}}
    )

    assert settings_check.restarting(Configuration(), changed) == ["capacityManager"]
    assert settings_check.restarting(changed, changed) == []


WHERE = {
    "a file": {"logLevel": "Debug"},
    "values of the chart": {"image": {"tag": "1"}, "settings": {"logLevel": "Debug"}},
    "values with nothing else": {"settings": {"logLevel": "Debug"}},
    "a ConfigMap": {"kind": "ConfigMap", "data": {"settings.yaml": "logLevel: Debug"}},
    "a ModuleConfig": {"kind": "ModuleConfig", "spec": {"enabled": True, "settings": {"logLevel": "Debug"}}},
}


@pytest.mark.parametrize("document", WHERE.values(), ids=WHERE)
def test_wherever_they_stand_they_are_found(document):
    assert settings_source.settings_in(document) == {"logLevel": "Debug"}
    assert settings_source.is_enabled(document)


def test_a_module_can_be_turned_off():
    assert not settings_source.is_enabled({"kind": "ModuleConfig", "spec": {"enabled": False}})


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"kind": "Secret"}, "a Secret carries no settings"),
        ({"kind": "ConfigMap", "data": {}}, "has no key settings.yaml"),
        ({"kind": "ConfigMap", "data": {"settings.yaml": "{"}}, "is no YAML"),
    ],
)
def test_a_document_without_settings_says_so(document, sentence):
    with pytest.raises(ValueError, match=sentence):
        settings_source.settings_in(document)


VALUES = {
    "without settings": ({"node": {"cards": "nvml"}, "crds": {"keep": False}}, []),
    "with none": ({"settings": None, "image": {"tag": "1"}}, []),
    "with an error among them": (
        {"node": {}, "settings": {"logLevel": "Loud"}},
        ["logLevel: 'Loud' is none"],
    ),
    "with a setting in the wrong place": (
        {"scheduler": {"enabled": True}, "logLevel": "Debug"},
        ["logLevel: in values of the chart this stands under settings: settings.logLevel"],
    ),
    "misspelt": ({"settings": {}, "imgae": {}}, ["imgae: the chart has no such value; here stand apiServer"]),
}


@pytest.mark.parametrize(("values", "sentences"), VALUES.values(), ids=VALUES)
def test_values_of_the_chart_are_known_by_their_words(values, sentences):
    assert settings_source.kind_of(values) == "values"
    found = [str(one) for one in settings_source.problems(values)]

    assert len(found) == len(sentences)
    assert all(one.startswith(sentence) for one, sentence in zip(found, sentences, strict=True))


def test_a_word_of_both_trees_means_settings():
    assert settings_source.kind_of({"monitoring": {"serviceMonitor": False}}) == "settings"
    assert settings_source.kind_of({}) == settings_source.kind_of(None) == "settings"


def test_a_span_in_seconds():
    assert [settings.seconds(one) for one in ("90s", "10m", "1h")] == [90, 600, 3600]
