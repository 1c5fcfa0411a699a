"""Reads the records of usage, for the recorder and for commands."""

import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from croupier.api import usage_records
from croupier.api.kinds import CONFIG_MAPS
from croupier.api.usage_records import ACCOUNT
from croupier.core.usage.account import HourUsage, UsageAccount, day_of
from croupier.core.usage.holdings import UsageKey
from croupier.core.usage.report import Hours
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import KubeError, NotFound
from croupier.kube.client.resource import Raw

_UNREADABLE = (KeyError, ValueError, EOFError, OSError, zlib.error, binascii.Error, msgspec.MsgspecError)


class UnreadableUsage(KubeError):
    """A ConfigMap of usage has content that Croupier did not write."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(
            f"cannot read ConfigMap {namespace}/{name}: it was changed by hand or by a newer version; "
            "restore it, or delete it to count from now on"
        )


@dataclass(frozen=True, slots=True)
class RecordedUsage:
    """The hours that were asked for, of all recorded days."""

    since: int
    """When counting began, in seconds."""
    until: int
    """Up to when usage is recorded, in seconds."""
    hours: Hours


async def read_account(api: Client, namespace: str) -> tuple[str, UsageAccount] | None:
    """The resourceVersion of the account, and the account; None if there is none yet."""
    found = await get(api, namespace, ACCOUNT)
    if found is None:
        return None
    try:
        return found["metadata"]["resourceVersion"], usage_records.decode_account(found)
    except _UNREADABLE as error:
        raise UnreadableUsage(namespace, ACCOUNT) from error


async def read(api: Client, namespace: str, since: int) -> RecordedUsage | None:
    """The recorded usage from the hour `since` on; None if nothing is recorded yet.

    A finished day is removed from the account after it was copied to its slot. So the account is read first,
    and its days count.
    """
    read = await read_account(api, namespace)
    if read is None:
        return None
    account = read[1]
    hours: dict[int, Mapping[UsageKey, HourUsage]] = dict(account.hours)
    present = {day_of(hour) for hour in hours}
    first = max(day_of(since), day_of(account.since // 3600))
    for day in range(first, day_of(account.until // 3600) + 1):
        if day not in present:
            hours |= await _read_day(api, namespace, day)
    return RecordedUsage(account.since, account.until, hours)


async def _read_day(api: Client, namespace: str, day: int) -> Hours:
    name = usage_records.slot_name(day)
    found = await get(api, namespace, name)
    if found is None:
        return {}
    try:
        return usage_records.decode_day(found, day)
    except _UNREADABLE as error:
        raise UnreadableUsage(namespace, name) from error


async def get(api: Client, namespace: str, name: str) -> Raw | None:
    """A ConfigMap; None if it does not exist."""
    try:
        return await api.get(CONFIG_MAPS.raw, name, namespace=namespace)
    except NotFound:
        return None
