"""The records of usage: ConfigMaps in the namespace of the installation.

`croupier-usage` contains the account: what is held, up to which change of the ledgers it is counted, and
the hours of the days that can still change. It is written by compare-and-swap, so a change is counted once.
The hours of a finished day are copied to one of the slots, the ConfigMaps `croupier-usage-00` to `croupier-
usage-16`, before they are removed from the account. The names are fixed, so that rights can be limited to
them.
"""

import base64
import gzip
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

import msgspec

from croupier.api.meta import PART_OF
from croupier.core.model.card import CardMode
from croupier.core.usage.account import HourUsage, KeyTotal, NodeHoldings, UsageAccount, day_of
from croupier.core.usage.holdings import UsageKey
from croupier.core.usage.report import Hours
from croupier.kube.client.resource import Raw

ACCOUNT: Final = "croupier-usage"
SLOTS: Final = 17
SLOT_DAYS: Final = 4
"""Days in one slot. All slots together have room for the longest retention, 62 days, and for today."""
_CONTENT: Final = "usage.json.gz"

_Key = tuple[str, str, str, CardMode]


class _HourRecord(msgspec.Struct, frozen=True, array_like=True):
    card_seconds: str
    began: int = 0
    carried: int = 0


class _DayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of keys are positions in `keys`."""

    keys: tuple[_Key, ...]
    hours: dict[int, dict[int, _HourRecord]]


class _AccountRecord(msgspec.Struct, frozen=True, kw_only=True):
    since: int
    until: int
    version: str
    keys: tuple[_Key, ...]
    nodes: dict[str, tuple[int, dict[int, dict[str, str]]]]
    hours: dict[int, dict[int, _HourRecord]]
    totals: dict[int, tuple[str, int]]


def slot_name(day: int) -> str:
    """The ConfigMap of a finished day, counted since 1970."""
    return f"{ACCOUNT}-{day // SLOT_DAYS % SLOTS:02}"


def names() -> tuple[str, ...]:
    """All ConfigMaps of usage."""
    return (ACCOUNT, *(slot_name(number * SLOT_DAYS) for number in range(SLOTS)))


def first_day_of_slot(day: int) -> int:
    """The first day that is stored together with `day`."""
    return day - day % SLOT_DAYS


def encode_account(account: UsageAccount) -> Raw:
    """The content of the ConfigMap."""
    held = (key for node in account.nodes.values() for key in node.holdings)
    numbers = _numbers((*account.totals, *held, *_keys(account.hours)))
    record = _AccountRecord(
        since=account.since,
        until=account.until,
        version=account.version,
        keys=_table(numbers),
        nodes={name: _encode_node(node, numbers) for name, node in account.nodes.items()},
        hours=_encode_hours(account.hours, numbers),
        totals={
            numbers[key]: (str(total.card_seconds), total.last_hour) for key, total in account.totals.items()
        },
    )
    return {_CONTENT: _packed(record)}


def decode_account(config_map: Raw) -> UsageAccount:
    record = msgspec.json.decode(_unpacked(config_map["binaryData"][_CONTENT]), type=_AccountRecord)
    keys = [UsageKey(*key) for key in record.keys]
    return UsageAccount(
        since=record.since,
        until=record.until,
        version=record.version,
        nodes={name: _decode_node(node, keys) for name, node in record.nodes.items()},
        hours=_decode_hours(record.hours, keys),
        totals={
            keys[number]: KeyTotal(Fraction(seconds), last)
            for number, (seconds, last) in record.totals.items()
        },
    )


def with_day(slot: Raw | None, day: int, hours: Hours) -> Raw:
    """The content of a slot with this day added; days of an earlier use of the slot are dropped."""
    first = first_day_of_slot(day)
    names = {_day_key(other) for other in range(first, first + SLOT_DAYS)}
    stored = (slot or {}).get("binaryData") or {}
    own = {hour: usage for hour, usage in hours.items() if day_of(hour) == day}
    numbers = _numbers(_keys(own))
    record = _DayRecord(keys=_table(numbers), hours=_encode_hours(own, numbers))
    kept = {name: content for name, content in stored.items() if name in names}
    return {**kept, _day_key(day): _packed(record)}


def decode_day(slot: Raw, day: int) -> dict[int, dict[UsageKey, HourUsage]]:
    """The hours of a day; empty if the slot does not have it."""
    content = (slot.get("binaryData") or {}).get(_day_key(day))
    if content is None:
        return {}
    record = msgspec.json.decode(_unpacked(content), type=_DayRecord)
    return _decode_hours(record.hours, [UsageKey(*key) for key in record.keys])


def _day_key(day: int) -> str:
    return f"{time_of(day * 86_400):%Y-%m-%d}.json.gz"


def config_map(name: str, namespace: str, content: Raw, version: str | None = None) -> Raw:
    """The object to write; `version` is the resourceVersion that it replaces."""
    metadata: Raw = {"name": name, "namespace": namespace, "labels": dict(PART_OF)}
    if version is not None:
        metadata["resourceVersion"] = version
    return {"metadata": metadata, "binaryData": content}


def time_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _keys(hours: Hours) -> Iterable[UsageKey]:
    return (key for usage in hours.values() for key in usage)


def _numbers(keys: Iterable[UsageKey]) -> dict[UsageKey, int]:
    return {key: number for number, key in enumerate(sorted(set(keys)))}


def _table(numbers: Mapping[UsageKey, int]) -> tuple[_Key, ...]:
    return tuple((key.namespace, key.pool, key.model, key.mode) for key in numbers)


def _encode_node(node: NodeHoldings, numbers: Mapping[UsageKey, int]) -> Any:
    held = {
        numbers[key]: {pod: str(share) for pod, share in pods.items()} for key, pods in node.holdings.items()
    }
    return node.generation, held


def _decode_node(record: tuple[int, dict[int, dict[str, str]]], keys: list[UsageKey]) -> NodeHoldings:
    generation, held = record
    return NodeHoldings(
        generation,
        {keys[n]: {pod: Fraction(share) for pod, share in pods.items()} for n, pods in held.items()},
    )


def _encode_hours(hours: Hours, numbers: Mapping[UsageKey, int]) -> dict[int, dict[int, _HourRecord]]:
    return {
        hour: {
            numbers[key]: _HourRecord(str(used.card_seconds), used.began, used.carried)
            for key, used in usage.items()
        }
        for hour, usage in hours.items()
    }


def _decode_hours(
    record: Mapping[int, Mapping[int, _HourRecord]], keys: list[UsageKey]
) -> dict[int, dict[UsageKey, HourUsage]]:
    return {
        hour: {
            keys[number]: HourUsage(Fraction(used.card_seconds), used.began, used.carried)
            for number, used in usage.items()
        }
        for hour, usage in record.items()
    }


def _packed(record: msgspec.Struct) -> str:
    return base64.b64encode(gzip.compress(msgspec.json.encode(record), mtime=0)).decode()


def _unpacked(content: str) -> bytes:
    return gzip.decompress(base64.b64decode(content))
