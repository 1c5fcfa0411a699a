"""cert-manager, played: it signs what a Certificate asks for, and tells the API server whom to trust.

The kubelet is played, too: the Secret stands in a folder behind a symbolic link, which it swaps as a whole.
"""

import json
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from croupier.admission import certificates
from croupier.admission.authority import RULES, Step
from croupier.admission.certificates import Keyring
from croupier.admission.configurations import INJECT
from tests.install import rendering
from tests.install.town import NAMESPACE, Town


def issue(town: Town) -> Keyring:
    """A new certificate where the chart's Certificate wants it; by the same authority as the one before."""
    wanted = rendering.named(town.objects, "Certificate", "croupier-webhook")["spec"]
    hosts = (*wanted["dnsNames"], "127.0.0.1")  # where the API server asks in a town without Services
    before: Keyring | None = town.told.get("certificate")
    made = certificates.taken(Step.ISSUE, before, datetime.now(UTC), hosts=hosts, rules=RULES)
    town.told["certificate"] = made
    _store(town, wanted["secretName"], made)
    _mount(town.folder / "tls", made)
    _inject(town, made)
    return made


def served(port: int) -> bytes:
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


def _store(town: Town, name: str, made: Keyring) -> None:
    parts = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.bundle}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {key: b64encode(content).decode() for key, content in parts.items()},
    }
    town.lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(secret))


def _mount(folder: Path, made: Keyring) -> None:
    """As a volume of a Secret changes: a new folder, and one link that leads to it from then on."""
    content = folder / f"..{datetime.now(UTC):%H%M%S%f}"
    content.mkdir()
    (content / "tls.crt").write_bytes(made.certificate)
    (content / "tls.key").write_bytes(made.key)
    link = folder / "..new"
    link.symlink_to(content.name)
    link.rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def _inject(town: Town, made: Keyring) -> None:
    for one in rendering.of_kind(
        town.objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    ):
        assert one["metadata"]["annotations"][INJECT] == f"{NAMESPACE}/croupier-webhook"
        bundle = b64encode(made.bundle).decode()
        steps = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": bundle}
            for at in range(len(one["webhooks"]))
        ]
        name = one["metadata"]["name"]
        town.lab.kubectl("patch", one["kind"], name, "--type=json", f"-p={json.dumps(steps)}")
