"""A store that follows a failing API server: each test breaks a real API server or the connection to it."""

import asyncio
from typing import Any

import pytest

from croupier.kube import client, config
from croupier.kube.client import Client, Selection
from croupier.kube.errors import Gone, Unreachable
from croupier.kube.resumption import Rules
from croupier.kube.sender import Patience
from tests.kube.cable import through
from tests.kube.kinds import CONFIG_MAPS, ConfigMap, config_map
from tests.kube.mirror import QUICK, Mirror, following
from tests.kube.waiting import until

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
        client.connect(config.load(lab.kubeconfig)) as api,
        following(api, CONFIG_MAPS, MINE) as mirror,
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
        await until(lambda: ("came", "d") in mirror.told)

    assert mirror.names() == truth(lab) == ["b", "c", "d"]
    came = [("came", name) for name in "abc"]
    assert mirror.told == [*came, ("went", "a"), ("changed", "b"), ("came", "d")], (
        "nothing twice, nothing lost"
    )


async def test_an_interrupted_watch_resumes_without_a_list(private_lab):
    lab = await private_lab()
    straight = config.load(lab.kubeconfig)
    async with (
        through(straight) as (cable, by_cable),
        client.connect(straight) as api,
        client.connect(by_cable) as weak_api,
        following(weak_api, CONFIG_MAPS, MINE) as mirror,
    ):
        await create(api, "a")
        await until(lambda: mirror.names() == ["a"])
        for number in range(5):
            cable.cut()
            await create(api, f"b{number}")
        await until(lambda: len(mirror.names()) == 6)

    assert mirror.told == [("came", "a"), *(("came", f"b{number}") for number in range(5))]
    assert mirror.reflector.figures.lists == 1


async def test_a_half_open_watch_times_out(private_lab):
    lab = await private_lab()
    straight = config.load(lab.kubeconfig)
    impatient = Rules(backoff=QUICK.backoff, silence=1.5)
    async with (
        through(straight) as (cable, by_cable),
        client.connect(straight) as api,
        client.connect(by_cable) as weak_api,
        following(weak_api, CONFIG_MAPS, MINE, impatient) as mirror,
    ):
        await until(lambda: mirror.reflector.figures.watches)
        cable.freeze()
        await create(api, "unseen")
        await until(lambda: mirror.names() == ["unseen"])

    assert mirror.reflector.figures.failures >= 1
    assert mirror.told == [("came", "unseen")]


async def test_an_expired_version_lists_again_and_notifies_only_real_changes(private_lab):
    lab = await private_lab(durable=True)
    straight = config.load(lab.kubeconfig)
    async with (
        through(straight) as (cable, by_cable),
        client.connect(straight) as api,
        client.connect(by_cable) as weak_api,
        following(weak_api, CONFIG_MAPS, MINE) as mirror,
    ):
        await create(api, "stays", "changes", "goes", "reborn")
        await until(lambda: len(mirror.names()) == 4)
        cable.unplug()
        del mirror.told[:]

        await change_unseen(api, mirror)
        await forget_history(lab)
        cable.plug()
        await until(lambda: mirror.reflector.figures.lists >= 2)
        await until(lambda: mirror.names() == truth(lab))

    assert sorted(mirror.told) == [
        ("came", "new"),
        ("came", "reborn"),
        ("changed", "changes"),
        ("went", "goes"),
        ("went", "reborn"),
    ]
    assert mirror.reflector.figures.lists == 2


async def change_unseen(api: Client, mirror: Mirror[ConfigMap]) -> None:
    await api.patch(CONFIG_MAPS, "changes", {"data": {"n": "2"}}, namespace="default")
    await api.delete(CONFIG_MAPS, "goes", namespace="default")
    await api.delete(CONFIG_MAPS, "reborn", namespace="default")
    await create(api, "reborn", "new")
    assert mirror.told == [], "the connection is down"


async def forget_history(lab: Any) -> None:
    """Compact etcd, and make the API server forget old versions too."""
    lab.etcd_compact()
    lab.kill("kube-apiserver")
    await lab.start("kube-apiserver")
    await lab.ready()


async def test_a_list_with_an_expired_continue_token_starts_over(private_lab):
    lab = await private_lab(extra={"kube-apiserver": ("--watch-cache=false",)})
    plain = config.load(lab.kubeconfig)
    async with client.connect(plain) as api:
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

    async with client.connect(plain, observe=compact_after_first_page) as api:
        listing = await api.list(CONFIG_MAPS, MINE, limit=2)

    assert sorted(found.metadata.name for found in listing.items) == ["a", "b", "c", "d", "e"]
    assert answered == 3, "one page, one refusal, one whole list"


async def test_an_unreachable_api_server_is_named_in_the_error(private_lab):
    lab = await private_lab()
    here = config.load(lab.kubeconfig)
    patience = Patience(tries=2)
    async with client.connect(here, patience=patience) as api:
        lab.kill("kube-apiserver")

        with pytest.raises(Unreachable, match=r"cannot reach https://127\.0\.0\.1:\d+: ") as caught:
            await api.create(CONFIG_MAPS, config_map(), namespace="default")

    assert "\n" not in str(caught.value)


async def test_a_write_survives_a_short_outage(private_lab):
    lab = await private_lab(durable=True)
    async with client.connect(config.load(lab.kubeconfig), patience=Patience(tries=40)) as api:
        lab.kill("kube-apiserver")
        writing = asyncio.create_task(api.create(CONFIG_MAPS, mine("patient"), namespace="default"))
        await lab.start("kube-apiserver")
        await lab.ready()
        await asyncio.wait_for(writing, 60)

    assert truth(lab) == ["patient"]
