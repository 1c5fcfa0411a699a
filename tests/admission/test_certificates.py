"""Certificates are always trusted, also during a rotation and when several replicas start."""

import asyncio
import ssl
from base64 import b64encode
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from croupier.admission import certificate_rotation, certificates
from croupier.admission.certificate_rotation import (
    CertificateValidity,
    RotationRules,
    RotationState,
    RotationStep,
    ServingCertificate,
)
from croupier.admission.certificates_files import MountedCertificate
from croupier.admission.certificates_shared import NAME
from croupier.api import kinds
from croupier.kube.client.api_client import PatchType, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.watch_protocol import ObjectEvent
from croupier.kube.serving.http_server import BadCertificate, RotatingCertificate
from tests.polling import until, until_async

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
RULES = RotationRules()
HOSTS = ("croupier-webhook.gpu.svc", "127.0.0.1")


def span(
    key: str, *, age: timedelta = timedelta(0), life: timedelta = RULES.authority_lifetime
) -> CertificateValidity:
    return CertificateValidity(key, NOW - age, NOW - age + life)


def ring(
    *authorities: CertificateValidity,
    signed_by: str = "",
    age: timedelta = timedelta(0),
    can_sign: bool = True,
) -> RotationState:
    known = authorities or (span("a", age=age),)
    leaf = span("leaf", age=age, life=RULES.serving_lifetime)
    return RotationState(
        known, ServingCertificate(leaf, signed_by or known[0].key, frozenset(HOSTS)), can_sign=can_sign
    )


OLD, YOUNG = span("a", age=500 * DAY), span("b", age=2 * HOUR)
STEPS = {
    "nothing there": (None, True, RotationStep.BEGIN),
    "fresh": (ring(), True, RotationStep.NOTHING),
    "a certificate in its last third": (ring(age=130 * DAY), True, RotationStep.ISSUE),
    "an expired certificate": (ring(age=181 * DAY), True, RotationStep.BEGIN),
    "a CA in its last third": (ring(OLD, age=DAY), True, RotationStep.JOIN),
    "no signing key": (ring(can_sign=False), True, RotationStep.JOIN),
    "a new CA that is not published": (ring(OLD, YOUNG, age=DAY), False, RotationStep.NOTHING),
    "a new CA that was published recently": (
        ring(OLD, span("b", age=HOUR / 2), age=DAY),
        True,
        RotationStep.NOTHING,
    ),
    "a new CA that was published long ago": (ring(OLD, YOUNG, age=DAY), True, RotationStep.ISSUE),
    "an old CA that may still be needed": (
        ring(OLD, YOUNG, signed_by="b", age=HOUR / 2),
        True,
        RotationStep.NOTHING,
    ),
    "an old CA that is not needed": (ring(OLD, YOUNG, signed_by="b", age=2 * HOUR), True, RotationStep.LEAVE),
    "signed by an unknown CA": (ring(signed_by="x"), True, RotationStep.BEGIN),
    "signed by an expired CA": (ring(span("a", age=800 * DAY), age=DAY), True, RotationStep.BEGIN),
}


@pytest.mark.parametrize(("found", "published", "step"), STEPS.values(), ids=STEPS)
def test_the_next_step(found, published, step):
    assert certificate_rotation.decide(found, NOW, published=published, hosts=HOSTS, rules=RULES) is step


def test_a_missing_host_name_is_added():
    assert (
        certificate_rotation.decide(ring(), NOW, published=True, hosts=("new.svc",), rules=RULES)
        is RotationStep.ISSUE
    )


@dataclass
class Rollout:
    """An API server and replicas with bundles and certificates of the maximum age."""

    lag: timedelta
    now: datetime = NOW
    ring: RotationState | None = None
    history: list[tuple[datetime, RotationState]] = field(default_factory=list)
    made: int = 0

    def step(self, published: bool) -> None:
        taken = certificate_rotation.decide(
            self.ring, self.now, published=published, hosts=HOSTS, rules=RULES
        )
        if taken is RotationStep.NOTHING:
            return
        self.made += 1
        self.ring = self._after(taken)
        self.history.append((self.now, self.ring))

    def _after(self, step: RotationStep) -> RotationState:
        young = CertificateValidity(f"{self.made}", self.now, self.now + RULES.authority_lifetime)
        if self.ring is None or step is RotationStep.BEGIN:
            assert self.ring is None, "a second BEGIN step"
            return RotationState((young,), self._leaf(young))
        if step is RotationStep.JOIN:
            signing = [
                authority
                for authority in self.ring.authorities
                if authority.key == self.ring.serving.signed_by
            ]
            return replace(self.ring, authorities=(*signing, young))
        if step is RotationStep.ISSUE:
            return replace(self.ring, serving=self._leaf(self.ring.youngest))
        return replace(self.ring, authorities=(self.ring.youngest,))

    def _leaf(self, signer: CertificateValidity) -> ServingCertificate:
        end = min(self.now + RULES.serving_lifetime, signer.end)
        return ServingCertificate(
            CertificateValidity(f"leaf {self.made}", self.now, end), signer.key, frozenset(HOSTS)
        )

    def in_use(self) -> list[RotationState]:
        """Values that may still be in use: the latest, and those replaced within the lag."""
        replaced = [when for when, _ in self.history[1:]]
        older = zip(self.history, replaced, strict=False)
        return [one for (_, one), until in older if until + self.lag > self.now] + [self.history[-1][1]]


@settings(
    max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)  # long examples shrink slowly
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=60, max_size=200))
def test_every_served_certificate_is_trusted_by_every_bundle_in_use(days):
    """Over years, with syncs at random times; a sync is repeated until nothing is left to do."""
    world = Rollout(lag=HOUR / 2)
    for index, (apart, published) in enumerate(days):
        for _ in range(4):
            world.step(published or index % 5 == 0)
            users = world.in_use()
            for serving in (user.serving for user in users):
                for bundle in (user.authorities for user in users):
                    assert serving.signed_by in {one.key for one in bundle}
                assert serving.span.end > world.now
            world.now += HOUR / 4
        world.now += apart * DAY / 2


def test_new_certificates_have_the_expected_fields():
    rules, now = RotationRules(overlap=HOUR), datetime.now(UTC).replace(microsecond=0)
    keys = certificates.after_step(RotationStep.BEGIN, None, now, hosts=HOSTS, rules=rules)
    bundles = [keys.bundle]
    for step, later in (
        (RotationStep.JOIN, HOUR / 4),
        (RotationStep.ISSUE, HOUR / 2),
        (RotationStep.LEAVE, HOUR),
    ):
        keys = certificates.after_step(step, keys, now + later, hosts=("new.svc",), rules=rules)
        bundles.append(keys.bundle)
        read = certificates.read(keys.data())
        assert read == keys

    assert [bundle.count(b"BEGIN CERTIFICATE") for bundle in bundles] == [1, 2, 2, 1]
    assert keys.ring.serving.hosts == {*HOSTS, "new.svc"}
    assert keys.ring.serving.span.start == now + HOUR / 2
    assert keys.ring.youngest.start == now + HOUR / 4
    _handshake(keys, bundles[1])
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(keys, bundles[0])


def test_a_certificate_expires_no_later_than_its_ca():
    rules = RotationRules(authority_lifetime=DAY, serving_lifetime=30 * DAY)
    keys = certificates.after_step(RotationStep.BEGIN, None, NOW, hosts=HOSTS, rules=rules)

    assert keys.ring.serving.span.end == keys.ring.youngest.end == NOW + DAY


BROKEN = {
    "empty": lambda data: {},
    "invalid base64": lambda data: {**data, "tls.crt": "%"},
    "invalid PEM": lambda data: {**data, "ca.crt": b64encode(b"x").decode()},
    "the key of another certificate": lambda data: {**data, "tls.key": data["ca.key"]},
    "a CA as the certificate": lambda data: {
        **data,
        "tls.crt": data["ca.crt"],
        "tls.key": data["ca.key"],
    },
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_an_invalid_secret_is_not_used(damage):
    keys = certificates.after_step(RotationStep.BEGIN, None, NOW, hosts=HOSTS, rules=RULES)

    assert certificates.read(damage(keys.data())) is None


def test_a_lost_signing_key_leads_to_a_new_ca():
    keys = certificates.after_step(RotationStep.BEGIN, None, NOW, hosts=HOSTS, rules=RULES)
    lost = certificates.read({**keys.data(), "ca.key": ""})

    assert lost is not None
    assert not lost.ring.can_sign


class TestShared:
    async def test_replicas_that_start_together_agree_on_one_ca(self, env):
        served = [RotatingCertificate() for _ in range(6)]
        replicas = [env.certificate(one) for one in served]

        await asyncio.gather(*(replica.sync() for replica in replicas))

        secret = await env.api.get(kinds.SECRETS, NAME, namespace=env.namespace)
        kept = certificates.read(secret.data)
        assert kept is not None
        assert len(kept.ring.authorities) == 1
        assert {replica._ring.bundle for replica in replicas} == {kept.bundle}
        assert {replica._ring.certificate for replica in replicas} == {kept.certificate}
        assert all(one.loaded for one in served)

    async def test_several_replicas_take_a_step_once(self, env):
        replicas = [env.certificate(RotatingCertificate()) for _ in range(6)]
        await replicas[0].sync()
        without = [{"op": "remove", "path": "/data/ca.key"}]
        asked = await env.api.patch(
            kinds.SECRETS, NAME, without, namespace=env.namespace, patch_type=PatchType.JSON
        )

        await asyncio.gather(*(replica.sync() for replica in replicas))

        here = Selection(namespace=env.namespace, fields=f"metadata.name={NAME}")
        since = asked.metadata.resource_version
        watch = env.api.watch(kinds.SECRETS, here, resource_version=since, seconds=1)
        written = [one.object async for batch in watch for one in batch if isinstance(one, ObjectEvent)]
        assert len(written) == 1
        assert {replica._ring.data()["ca.crt"] for replica in replicas} == {written[0].data["ca.crt"]}

    async def test_an_invalid_secret_is_replaced_and_foreign_keys_stay(self, env):
        replica = env.certificate(RotatingCertificate())
        await replica.sync()
        damage = {
            "data": {"tls.crt": "", "note": b64encode(b"theirs").decode()},
            "metadata": {"labels": {"a": "b"}},
        }
        await env.api.patch(kinds.SECRETS, NAME, damage, namespace=env.namespace)

        await replica.sync()

        secret = await env.api.get(kinds.SECRETS, NAME, namespace=env.namespace)
        assert certificates.read(secret.data) is not None
        assert secret.data["note"] == b64encode(b"theirs").decode()
        assert secret.metadata.labels == {"a": "b"}

    async def test_a_deleted_secret_is_created_again_unchanged(self, env):
        async with env.open() as certificate:
            before = certificate._ring
            await env.api.delete(kinds.SECRETS, NAME, namespace=env.namespace)

            async def back() -> bool:
                try:
                    secret = await env.api.get(kinds.SECRETS, NAME, namespace=env.namespace)
                except NotFound:
                    return False
                return bool(secret.data == before.data())

            await until_async(back, "the Secret to be written again")

    async def test_a_change_by_one_replica_is_served_by_all(self, env):
        async with env.open() as one, env.replica(port=0) as other:
            begun = other._ring.ring.youngest
            without = [{"op": "remove", "path": "/data/ca.key"}]
            await env.api.patch(
                kinds.SECRETS, NAME, without, namespace=env.namespace, patch_type=PatchType.JSON
            )

            await until(lambda: len(other._ring.ring.authorities) == 2, "the new authority to join")
            await until(lambda: one._ring == other._ring, "both to have the same")
            assert other._ring.ring.authorities[0] == begun
            assert other._ring.ring.serving.signed_by == begun.key


class TestMounted:
    def test_a_changed_file_is_served_and_an_invalid_one_is_not(self, tmp_path):
        served = RotatingCertificate()
        mounted = MountedCertificate(tmp_path, None, served)
        with pytest.raises(BadCertificate, match="has no certificate"):
            mounted.sync()
        assert mounted.watcher.missing() is not None

        first, second = (
            certificates.after_step(RotationStep.BEGIN, None, datetime.now(UTC), hosts=HOSTS, rules=RULES)
            for _ in range(2)
        )
        _mount(tmp_path, first.certificate, first.key)
        mounted.sync()
        assert mounted.watcher.missing() is None
        _handshake_with(served, first.bundle)

        _mount(tmp_path, second.certificate, first.key)
        with pytest.raises(BadCertificate):
            mounted.sync()
        _handshake_with(served, first.bundle)

        _mount(tmp_path, second.certificate, second.key)
        mounted.sync()
        _handshake_with(served, second.bundle)

    async def test_the_folder_is_polled_for_changes(self, tmp_path):
        served = RotatingCertificate()
        mounted = MountedCertificate(tmp_path, None, served, every=0.02)
        looking = asyncio.create_task(mounted.run())
        await until(lambda: mounted.watcher.last_error, "the error to be set")
        keys = certificates.after_step(RotationStep.BEGIN, None, datetime.now(UTC), hosts=HOSTS, rules=RULES)
        _mount(tmp_path, keys.certificate, keys.key)
        await until(lambda: mounted.watcher.missing() is None, "the certificate to be found")
        looking.cancel()
        await asyncio.wait({looking})

    async def test_the_bundle_is_left_to_the_injector(self, env, tmp_path):
        keys = certificates.after_step(RotationStep.BEGIN, None, datetime.now(UTC), hosts=HOSTS, rules=RULES)
        _mount(tmp_path, keys.certificate, keys.key)
        env.options = replace(env.options, inject_from="gpu/cert")
        mounted = MountedCertificate(tmp_path, env.registration, RotatingCertificate(), every=0.02)
        looking = asyncio.create_task(mounted.run())
        mounted.watcher.answer()

        async def registered() -> Any:
            try:
                return await env.api.get(kinds.MUTATING_WEBHOOKS.raw, env.options.name)
            except NotFound:
                return None

        found = await until_async(registered, "the configuration")
        looking.cancel()
        await asyncio.wait({looking})
        assert found["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gpu/cert"}
        assert "caBundle" not in found["webhooks"][0]["clientConfig"]


def _mount(folder: Path, certificate: bytes, key: bytes) -> None:
    (folder / certificates.CERTIFICATE).write_bytes(certificate)
    (folder / certificates.KEY).write_bytes(key)


def _handshake(keys: certificates.Keyring, bundle: bytes) -> None:
    served = RotatingCertificate()
    served.replace(keys.certificate, keys.key)
    _handshake_with(served, bundle)


def _handshake_with(served: RotatingCertificate, bundle: bytes) -> None:
    """An in-memory TLS client that trusts `bundle`."""
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=HOSTS[0])
    server = served.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    client.do_handshake()
