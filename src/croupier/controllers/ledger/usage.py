"""Records how much of the cards each namespace holds, and for how long (docs/usage.md).

The account is read at the start of a leadership, follows the changes of the ledgers, and is written once a
minute while anything is held, and at the end. A write contains the amounts together with the version of the
ledgers up to which they are counted, and replaces exactly the account that was read. So every change is
counted once, whatever process counts it and however often it is interrupted.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from croupier.api import usage_records
from croupier.api.kinds import CONFIG_MAPS
from croupier.api.usage_records import ACCOUNT, SLOT_DAYS, SLOTS
from croupier.capacity import usage_data
from croupier.controllers.ledger.usage_metrics import UsageMetrics
from croupier.controllers.ledger.usage_sources import LedgerChanges
from croupier.core.usage.account import DAY, UsageAccount, day_of, hour_of
from croupier.kube.client.api_client import Client
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.client.errors import Conflict, KubeError
from croupier.kube.client.resource import Raw
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck

RETRY: Final = 5.0
"""Seconds until the account is read again after an error."""
FIRST: Final = 5.0
"""Seconds until the first record of a leadership."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UsageOptions:
    namespace: str
    retention: int
    """Days to keep, without today."""
    interval: float = 60.0
    """Seconds between two records."""


class UsageRecorder:
    """The caller fences `api` if there is leader election."""

    def __init__(
        self, changes: LedgerChanges, api: Client, *, metrics: UsageMetrics, options: UsageOptions
    ) -> None:
        self._changes = changes
        self._api = api
        self._metrics = metrics
        self._options = options
        self._stored: str | None = None
        """The resourceVersion of the account that the next write replaces. None: there is none."""

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        while not stop.is_set() and leader_check.held():
            try:
                await self._record(stop)
            except Conflict:
                log.info("another process has recorded usage, so its account is read")
            except Exception as error:  # usage must not stop the controllers of the ledger
                unexpected = None if isinstance(error, KubeError) else error
                log.warning(
                    f"usage cannot be recorded and is tried again: {error}",
                    error=str(error),
                    exc_info=unexpected,
                )
                await wait_or_stop(stop, asyncio.sleep(RETRY))

    async def _record(self, stop: asyncio.Event) -> None:
        """Follow the ledgers and write records until `stop`, or until the account must be read again."""
        account = await self._load()
        following = asyncio.create_task(self._changes.follow(account))
        stopping = asyncio.create_task(stop.wait())
        pause = min(FIRST, self._options.interval)
        try:
            while not stop.is_set():
                await asyncio.wait({following, stopping}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                pause = self._options.interval
                if following.done():
                    following.result()
                await self._save_or_warn(account)
        finally:
            for task in (following, stopping):
                task.cancel()
            await asyncio.wait({following, stopping})

    async def _save_or_warn(self, account: UsageAccount) -> None:
        """An account that could not be written stays in memory; the next record contains everything."""
        try:
            await self.save(account)
        except Conflict:
            raise
        except KubeError as error:
            log.warning(
                f"the record of usage cannot be written and is tried again: {error}", error=str(error)
            )

    async def _load(self) -> UsageAccount:
        read = await usage_data.read_account(self._api, self._options.namespace)
        if read is None:
            now = self._changes.now()
            self._stored = None
            return UsageAccount(since=now, until=now)
        self._stored, account = read
        self._metrics.update(account.totals)
        return account

    async def save(self, account: UsageAccount) -> None:
        """Count up to now and write the account, unless nothing is held and nothing has changed."""
        if not account.is_idle:
            account.advance(max(self._changes.now(), account.until))
        if not account.changed:
            return
        for day in account.finished_days():
            await self._archive(account, day)
        account.changed = False
        try:
            self._stored = await self._write(ACCOUNT, usage_records.encode_account(account), self._stored)
        except KubeError:
            account.changed = True
            raise
        self._metrics.update(account.totals)

    async def _archive(self, account: UsageAccount, day: int) -> None:
        """Copy a finished day to its slot, and remove it from the account, which is written afterwards.

        A process whose account is outdated stops here instead of copying outdated hours.
        """
        slot = await usage_data.get(self._api, self._options.namespace, usage_records.slot_name(day))
        newest = await usage_data.get(self._api, self._options.namespace, ACCOUNT)
        if newest is not None and newest["metadata"]["resourceVersion"] != self._stored:
            raise Conflict(409, "Conflict", f"ConfigMap {ACCOUNT} was written by another process")
        content = usage_records.with_day(slot, day, account.hours)
        await self._write(usage_records.slot_name(day), content, _version(slot))
        account.hours = {hour: usage for hour, usage in account.hours.items() if day_of(hour) != day}
        await self._expire(account)

    async def _expire(self, account: UsageAccount) -> None:
        """Empty the slots whose days are all older than the retention."""
        today = day_of(hour_of(account.until))
        oldest = today - self._options.retention
        account.forget_before(oldest * DAY)
        newest_slot = usage_records.first_day_of_slot(today)
        for age in range(1, SLOTS):
            first = newest_slot - age * SLOT_DAYS
            if first + SLOT_DAYS <= oldest:
                await self._empty(usage_records.slot_name(first))

    async def _empty(self, name: str) -> None:
        slot = await usage_data.get(self._api, self._options.namespace, name)
        if slot is not None and slot.get("binaryData"):
            await self._write(name, {}, _version(slot))

    async def _write(self, name: str, content: Raw, version: str | None) -> str:
        """Create the ConfigMap, or replace the version that was read; returns the new version."""
        body = usage_records.config_map(name, self._options.namespace, content, version)
        write = self._api.create if version is None else self._api.update
        return (await write(CONFIG_MAPS, body)).metadata.resource_version


def _version(found: Raw | None) -> str | None:
    version: str | None = None if found is None else found["metadata"]["resourceVersion"]
    return version
