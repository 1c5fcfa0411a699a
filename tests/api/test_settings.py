"""Settings: errors by path, defaults, sources, and which changes need a restart."""

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
    "reservations.maxPerNamespace": "100",
    "reservations.maxCardsPerNamespace": "32",
    "reservations.maxTTL": "24h",
    "reservations.defaultTTL": "1h",
    "reservations.mirror": "Off",
    "reservations.mirrorKeep": "10m",
    "sharing.minPercent": "3",
    "usage.retention": "35d",
    "capacityManager": "InMemory",
    "fallback.direction": "nearest",
    "fallback.minMemory": "",
    "fallback.preferAvailable": "false",
    "fallback.whenNothingFits": "Admit",
    "podAllocations.maxPerNamespace": "3000",
    "maintenance.deadline": "1h",
    "alerts.capacityLow.percent": "10",
    "alerts.capacityLow.for": "10m",
    "alerts.nodeWithoutPool.for": "30m",
    "guard.mode": "Warn",
    "guard.images": "Auto",
    "monitoring.serviceMonitor": "true",
    "logLevel": "Info",
    "https.mode": "SelfSigned",
}

WRONG = {
    "a text for a boolean": ({"highAvailability": "yes"}, "highAvailability: 'yes' must be true or false"),
    "a misspelt name": (
        {"fallback": {"direcion": "up"}},
        "fallback.direcion: there is no such setting; did you mean direction?",
    ),
    "an unknown value": (
        {"fallback": {"direction": "sideways"}},
        "fallback.direction: 'sideways' is not one of down, nearest, off, up",
    ),
    "a time in words": (
        {"reservation": {"ttl": "2 minutes"}},
        "reservation.ttl: '2 minutes' must have a format such as 90s",
    ),
    "more days than can be kept": (
        {"usage": {"retention": "63d"}},
        "usage.retention: '63d' must have a format such as 35d",
    ),
    "too much": (
        {"alerts": {"capacityLow": {"percent": 101}}},
        "alerts.capacityLow.percent: 101 is out of range: 0 to 100",
    ),
    "a selector that is missing": (
        {"deviceApproval": {"mode": "Selector"}},
        "deviceApproval.selector: mode Selector needs",
    ),
    "two contradictory settings": (
        {"highAvailability": True, "capacityManager": "InMemory"},
        "capacityManager: highAvailability requires the ledger in NodeReservations",
    ),
    "a list": ([1], "settings: [1] must be a group of settings"),
}


@pytest.mark.parametrize(("data", "sentence"), WRONG.values(), ids=WRONG)
def test_an_error_names_the_path_and_the_allowed_values(data, sentence):
    problems = settings_check.problems(data)
    assert [str(problem) for problem in problems if str(problem).startswith(sentence)]


def test_all_errors_are_reported_at_once():
    together: dict[str, object] = {
        "fallback": {"direction": "sideways"},
        "reservation": {"ttl": "soon"},
        "logLevel": "Loud",
    }

    assert [problem.path for problem in settings_check.problems(together)] == [
        "fallback.direction",
        "logLevel",
        "reservation.ttl",
    ]


def test_the_defaults_are_as_documented():
    assert settings_check.problems({}) == []
    assert {row.path: row.default for row in settings_page.rows()} == PROMISED
    assert settings.read({}) == Configuration()


def test_high_availability_needs_the_ledger_in_the_api_server():
    assert settings.read({}).book == "InMemory"
    assert settings.read({"highAvailability": True}).book == "CRD"


def test_only_changes_that_need_a_restart_are_listed():
    changed = settings.read(
        {"capacityManager": "CRD", "logLevel": "Debug", "maintenance": {"deadline": "2h"}}
    )

    assert settings_check.restart_paths(Configuration(), changed) == ["capacityManager"]
    assert settings_check.restart_paths(changed, changed) == []


WHERE = {
    "a file": {"logLevel": "Debug"},
    "values of the chart": {"image": {"tag": "1"}, "settings": {"logLevel": "Debug"}},
    "values with nothing else": {"settings": {"logLevel": "Debug"}},
    "a ConfigMap": {"kind": "ConfigMap", "data": {"settings.yaml": "logLevel: Debug"}},
    "a ModuleConfig": {"kind": "ModuleConfig", "spec": {"enabled": True, "settings": {"logLevel": "Debug"}}},
}


@pytest.mark.parametrize("document", WHERE.values(), ids=WHERE)
def test_settings_are_found_in_every_kind_of_document(document):
    assert settings_source.settings_in(document) == {"logLevel": "Debug"}
    assert settings_source.is_enabled(document)


def test_a_module_config_can_disable_the_installation():
    assert not settings_source.is_enabled({"kind": "ModuleConfig", "spec": {"enabled": False}})


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"kind": "Secret"}, "a Secret cannot contain settings"),
        ({"kind": "ConfigMap", "data": {}}, "has no key settings.yaml"),
        ({"kind": "ConfigMap", "data": {"settings.yaml": "{"}}, "is not valid YAML"),
    ],
)
def test_a_document_that_cannot_contain_settings_is_refused(document, sentence):
    with pytest.raises(ValueError, match=sentence):
        settings_source.settings_in(document)


VALUES = {
    "without settings": ({"node": {"cards": "nvml"}, "crds": {"keep": False}}, []),
    "with none": ({"settings": None, "image": {"tag": "1"}}, []),
    "with an error among them": (
        {"node": {}, "settings": {"logLevel": "Loud"}},
        ["logLevel: 'Loud' is not one of"],
    ),
    "with a setting in the wrong place": (
        {"scheduler": {"enabled": True}, "logLevel": "Debug"},
        ["logLevel: in values of the chart this setting is settings.logLevel"],
    ),
    "misspelt": (
        {"settings": {}, "imgae": {}},
        ["imgae: the chart has no such value; valid names here are affinity, apiServer"],
    ),
}


@pytest.mark.parametrize(("values", "sentences"), VALUES.values(), ids=VALUES)
def test_values_of_the_chart_are_recognized_by_their_keys(values, sentences):
    assert settings_source.kind_of(values) == "values"
    problems = [str(problem) for problem in settings_source.problems(values)]

    assert len(problems) == len(sentences)
    assert all(problem.startswith(sentence) for problem, sentence in zip(problems, sentences, strict=True))


def test_a_key_of_both_means_settings():
    assert settings_source.kind_of({"monitoring": {"serviceMonitor": False}}) == "settings"
    assert settings_source.kind_of({}) == settings_source.kind_of(None) == "settings"


def test_a_duration_in_seconds():
    assert [settings.seconds(text) for text in ("90s", "10m", "1h")] == [90, 600, 3600]
