"""Log lines use the keys of docs/logs.md, and messages are sentences that name their object."""

import re
from collections.abc import Iterable

from tests.docs.blocks import ROOT
from tools.reference import log_calls
from tools.reference.log_calls import LogCall

EVERY_LINE = {"logger", "exception", "stack"}
"""What croupier.kube.serving.logs adds."""
EXPANDED = {
    "wiring/startup.py": {
        "process",
        "capacity_manager",
        "settings",
        "identity",
        "url",
        "server",
        "controllers",
    },
    "ui/guards.py": {"method", "path"},
}
"""Keys of mappings that are passed with `**`."""
NOT_KEYS = {"exc_info", "**"}
OBJECTS = {"card", "holder", "lease", "node", "pod", "pool", "reservation", "resource"}
NOT_A_SUBJECT = re.compile(
    r"(cannot|could|failed|would|will|no longer|unexpected|wrote|serving|stopping|writing|starting|\w+ed) "
)


def documented() -> set[str]:
    table = (ROOT / "docs/logs.md").read_text().partition("## Keys\n")[2]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def used(calls: Iterable[LogCall]) -> set[str]:
    keys = {key for call in calls for key in call.keys}
    expanded = {key for call in calls if "**" in call.keys for key in EXPANDED[call.where.split(":")[0]]}
    return (keys | expanded | EVERY_LINE | log_calls.context_keys()) - NOT_KEYS


def test_the_page_lists_exactly_the_keys_that_are_used():
    calls = log_calls.all_calls()
    assert len(calls) > 100

    assert documented() == used(calls)


def test_a_message_names_its_object():
    nameless = [call for call in log_calls.all_calls() if OBJECTS & {*call.keys} and not call.names_object]

    assert nameless == []


def test_a_message_begins_with_its_subject():
    broken = [call for call in log_calls.all_calls() if NOT_A_SUBJECT.match(call.begins)]

    assert broken == []


def test_the_rules_find_messages_that_break_them():
    assert NOT_A_SUBJECT.match("cannot read the file")
    assert NOT_A_SUBJECT.match("released a hold")
    assert not NOT_A_SUBJECT.match("pod ns/a is bound")
