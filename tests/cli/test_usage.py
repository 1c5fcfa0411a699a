"""`croupier usage`: card-hours by namespace, pool, model or mode, from the records."""

import csv
import io
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from croupier.api import kinds, usage_records
from croupier.core.usage.account import HOUR, NodeHoldings, UsageAccount
from croupier.core.usage.holdings import UsageKey
from tests.cli.env import CommandResult, croupier

A100 = UsageKey("team-a", "training", "A100", "Percent")
MIG = UsageKey("team-a", "", "A100", "MIG")
OTHER = UsageKey("team-b", "training", "H100", "Exclusive")
NOON = int(datetime(2026, 11, 3, 12, tzinfo=UTC).timestamp())


def recorded() -> UsageAccount:
    """A quarter of a card for 4 hours, a seventh for one, and a whole card since yesterday morning."""
    account = UsageAccount(since=NOON - 30 * HOUR, until=NOON - 30 * HOUR)
    account.observe("node-2", NodeHoldings(1, {OTHER: {"x": Fraction(1)}}), NOON - 30 * HOUR)
    account.observe("node-1", NodeHoldings(1, {A100: {"a": Fraction(1, 4)}}), NOON - 4 * HOUR)
    account.observe("node-1", NodeHoldings(2, {MIG: {"b": Fraction(1, 7)}}), NOON)
    account.advance(NOON + HOUR)
    return account


@pytest.fixture
async def ask(api, cluster, namespace):
    """Write the records as the recorder does, with yesterday in its slot; ask about them."""
    account, yesterday = recorded(), NOON // HOUR // 24 - 1
    day = usage_records.with_day(None, yesterday, account.hours)
    slot = usage_records.config_map(usage_records.slot_name(yesterday), namespace, day)
    await api.create(kinds.CONFIG_MAPS.raw, slot)
    account.hours = {hour: usage for hour, usage in account.hours.items() if hour // 24 > yesterday}
    content = usage_records.encode_account(account)
    await api.create(kinds.CONFIG_MAPS.raw, usage_records.config_map("croupier-usage", namespace, content))

    def run(*args: str) -> CommandResult:
        return croupier("usage", f"--install-namespace={namespace}", *args, kubeconfig=cluster.kubeconfig)

    return run


async def test_the_table_shows_hours_holders_and_the_total(ask):
    shown = ask("--since", "2026-11-02", "--by", "namespace", "--by", "model").out.splitlines()

    assert [line.split() for line in shown] == [
        ["From", "2026-11-02", "06:00:00", "UTC", "to", "2026-11-03", "13:00:00", "UTC"],
        ["NAMESPACE", "MODEL", "CARD-HOURS", "HOLDERS"],
        ["team-b", "H100", "31.00", "1"],
        ["team-a", "A100", "1.14", "2"],
        ["total", "-", "32.14", "3"],
    ]


async def test_json_and_csv_have_exact_seconds(ask):
    period = ("--since", "2026-11-03T08:00Z", "--until", "2026-11-03T13:00Z", "-n", "team-a", "--by", "mode")
    data = ask(*period, "-o", "json").data

    assert (data["since"], data["until"]) == ("2026-11-03T08:00:00Z", "2026-11-03T13:00:00Z")
    assert data["rows"] == [
        {"mode": "Percent", "cardSeconds": 3600, "cardHours": 1.0, "holders": 1},
        {"mode": "MIG", "cardSeconds": pytest.approx(3600 / 7), "cardHours": 0.1429, "holders": 1},
    ]
    assert data["total"]["holders"] == 2
    rows = list(csv.DictReader(io.StringIO(ask(*period, "-o", "csv").out)))
    assert [row["mode"] for row in rows] == ["Percent", "MIG"]
    assert (rows[0]["card_seconds"], rows[0]["holders"]) == ("3600", "1")
    assert ask("--since", "2026-11-03", "-n", "none").out.endswith("No cards were held in this time.\n")


async def test_the_command_line_is_checked(ask):
    wrong = {
        ("--by", "node"): "--by node: must be namespace, pool, model or mode.",
        ("--since", "yesterday"): "--since yesterday: must be a span such as 90m, 24h, 7d or 4w,",
        ("--since", "1d", "--until", "2d"): "--until 2d: must be at least one full hour after --since 1d.",
        ("-o", "yaml"): "--output yaml: must be table, json or csv.",
    }
    for args, sentence in wrong.items():
        answer = ask(*args)
        assert (answer.code, sentence in answer.err) == (2, True), answer.err


async def test_without_records_or_rights_it_says_so(ask, api, cluster, namespace, tmp_path):
    missing = croupier("usage", "--install-namespace=nowhere", kubeconfig=cluster.kubeconfig)
    assert missing.code == 1
    assert "no usage is recorded in namespace nowhere yet" in missing.err

    member = tmp_path / "member.kubeconfig"
    text = cluster.kubeconfig.read_text()
    member.write_text(text.replace("  user:\n", "  user:\n    as: member\n", 1))
    refused = croupier("usage", f"--install-namespace={namespace}", kubeconfig=member)
    assert refused.code == 1
    assert refused.err == (
        f"croupier: you may not read the records of usage: they are ConfigMaps in namespace {namespace}. "
        "Ask for a RoleBinding to the Role croupier-usage-reader in that namespace.\n"
    )

    broken = {"binaryData": {"usage.json.gz": "bm9uc2Vuc2U="}}
    await api.patch(kinds.CONFIG_MAPS, "croupier-usage", broken, namespace=namespace)
    answer = ask()
    assert answer.code == 1
    assert f"cannot read ConfigMap {namespace}/croupier-usage: it was changed by hand" in answer.err
