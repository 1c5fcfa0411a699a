"""A store that follows a failing API server: each test breaks a real API server or the connection to it."""

import asyncio
from typing import Any

import pytest

from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import Gone, Unreachable
from croupier.kube.client.retry import RetryOptions
from tests.kube.builders import CONFIG_MAPS, ConfigMap, config_map
from tests.kube.faulty_connection import proxied
from tests.kube.watched_store import QUICK_RETRIES, WatchedStore, watched_store
from tests.polling import until

SECONDS = 40

MINE = Selection("default", labels="mine")


def mine(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"mine": "yes"}}, "data": data}


async def create(api: Client, *names: str) -> None:
    for name in names:
        await api.create(CONFIG_MAPS, mine(name), namespace="default")


def truth(lab: Any) -> list[str]:
    found = lab.kubectl("get", "configmaps", "-l", "mine", "-o", "jsonpath={.items[*].metadata.name}")
    return sorted(found.stdout.split())


async def test_an_api_server_that_restarts(private_lab):
    lab = await private_lab(durable=True)
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        watched_store(api, CONFIG_MAPS, MINE) as mirror,
    ):
        await create(api, "a", "b", "c")
        await until(lambda: mirror.names() == ["a", "b", "c"])

        lab.kill("kube-apiserver")
        await until(lambda: mirror.reflector.last_error)
        assert mirror.names() == ["a", "b", "c"], "the store answers on while the API server is away"

        await lab.start("kube-apiserver")
        await lab.ready()
        await api.delete(CONFIG_MAPS, "a", namespace="default")
        await api.patch(CONFIG_MAPS, "b", {"data": {"n": "2"}}, namespace="default")
        await create(api, "d")
        await until(lambda: ("came", "d") in mirror.changes)

    assert mirror.names() == truth(lab) == ["b", "c", "d"]
    came = [("came", name) for name in "abc"]
    assert mirror.changes == [*came, ("went", "a"), ("changed", "b"), ("came", "d")], (
        "nothing twice, nothing lost"
    )


async def test_an_interrupted_watch_resumes_without_a_list(private_lab):
    lab = await private_lab()
    straight = config.load(lab.kubeconfig)
    async with (
        proxied(straight) as (cable, by_cable),
        api_client.connect(straight) as api,
        api_client.connect(by_cable) as weak_api,
        watched_store(weak_api, CONFIG_MAPS, MINE) as mirror,
    ):
        await create(api, "a")
        await until(lambda: mirror.names() == ["a"])
        for number in range(5):
            cable.cut()
            await create(api, f"b{number}")
        await until(lambda: len(mirror.names()) == 6)

    assert mirror.changes == [("came", "a"), *(("came", f"b{number}") for number in range(5))]
    assert mirror.reflector.stats.lists == 1


async def test_a_half_open_watch_times_out(private_lab):
    lab = await private_lab()
    straight = config.load(lab.kubeconfig)
    impatient = ReflectorOptions(backoff=QUICK_RETRIES.backoff, idle_timeout=1.5)
    async with (
        proxied(straight) as (cable, by_cable),
        api_client.connect(straight) as api,
        api_client.connect(by_cable) as weak_api,
        watched_store(weak_api, CONFIG_MAPS, MINE, impatient) as mirror,
    ):
        await until(lambda: mirror.reflector.stats.watches)
        cable.freeze()
        await create(api, "unseen")
        await until(lambda: mirror.names() == ["unseen"])

    assert mirror.reflector.stats.failures >= 1
    assert mirror.changes == [("came", "unseen")]


async def test_an_expired_version_lists_again_and_notifies_only_real_changes(private_lab):
    lab = await private_lab(durable=True)
    straight = config.load(lab.kubeconfig)
    async with (
        proxied(straight) as (cable, by_cable),
        api_client.connect(straight) as api,
        api_client.connect(by_cable) as weak_api,
        watched_store(weak_api, CONFIG_MAPS, MINE) as mirror,
    ):
        await create(api, "stays", "changes", "goes", "reborn")
        await until(lambda: len(mirror.names()) == 4)
        cable.unplug()
        del mirror.changes[:]

        await change_unseen(api, mirror)
        await forget_history(lab)
        cable.plug()
        await until(lambda: mirror.reflector.stats.lists >= 2)
        await until(lambda: mirror.names() == truth(lab))

    assert sorted(mirror.changes) == [
        ("came", "new"),
        ("came", "reborn"),
        ("changed", "changes"),
        ("went", "goes"),
        ("went", "reborn"),
    ]
    assert mirror.reflector.stats.lists == 2


async def change_unseen(api: Client, mirror: WatchedStore[ConfigMap]) -> None:
    await api.patch(CONFIG_MAPS, "changes", {"data": {"n": "2"}}, namespace="default")
    await api.delete(CONFIG_MAPS, "goes", namespace="default")
    await api.delete(CONFIG_MAPS, "reborn", namespace="default")
    await create(api, "reborn", "new")
    assert mirror.changes == [], "the connection is down"


async def forget_history(lab: Any) -> None:
    """Compact etcd, and make the API server forget old versions too."""
    lab.etcd_compact()
    lab.kill("kube-apiserver")
    await lab.start("kube-apiserver")
    await lab.ready()


async def test_a_list_with_an_expired_continue_token_starts_over(private_lab):
    lab = await private_lab(extra={"kube-apiserver": ("--watch-cache=false",)})
    plain = config.load(lab.kubeconfig)
    async with api_client.connect(plain) as api:
        await create(api, "a", "b", "c", "d")

        pages = api.pages(CONFIG_MAPS, MINE, limit=2)
        await anext(pages)
        await create(api, "e")
        lab.etcd_compact()
        with pytest.raises(Gone):
            await anext(pages)

    answered = 0

    def compact_after_first_page(verb: str, resource: str, code: int, seconds: float) -> None:
        nonlocal answered
        answered += 1
        if answered == 1:
            lab.kubectl("label", "configmap", "a", "mine=touched", "--overwrite")
            lab.etcd_compact()

    async with api_client.connect(plain, observe=compact_after_first_page) as api:
        listing = await api.list(CONFIG_MAPS, MINE, limit=2)

    assert sorted(found.metadata.name for found in listing.items) == ["a", "b", "c", "d", "e"]
    assert answered == 3, "one page, one refusal, one whole list"


async def test_an_unreachable_api_server_is_named_in_the_error(private_lab):
    lab = await private_lab()
    here = config.load(lab.kubeconfig)
    patience = RetryOptions(tries=2)
    async with api_client.connect(here, retry=patience) as api:
        lab.kill("kube-apiserver")

        with pytest.raises(Unreachable, match=r"cannot reach https://127\.0\.0\.1:\d+: ") as caught:
            await api.create(CONFIG_MAPS, config_map(), namespace="default")

    assert "\n" not in str(caught.value)


async def test_a_write_survives_a_short_outage(private_lab):
    lab = await private_lab(durable=True)
    async with api_client.connect(config.load(lab.kubeconfig), retry=RetryOptions(tries=40)) as api:
        lab.kill("kube-apiserver")
        writing = asyncio.create_task(api.create(CONFIG_MAPS, mine("patient"), namespace="default"))
        await lab.start("kube-apiserver")
        await lab.ready()
        await asyncio.wait_for(writing, 60)

    assert truth(lab) == ["patient"]
