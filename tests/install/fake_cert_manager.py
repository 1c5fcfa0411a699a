"""A fake cert-manager: it issues the Certificate of the chart and injects the CA bundle.

It also acts as the kubelet and updates the mounted Secret by swapping a symbolic link.
"""

import json
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

from croupier.admission import certificates
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationStep
from croupier.admission.certificates import Keyring
from croupier.admission.configurations import INJECT_CA
from tests.install import rendering
from tests.install.chart_env import NAMESPACE, ChartEnv


def issue(chart: ChartEnv) -> Keyring:
    """Issue a new certificate with the same CA for the chart's Certificate."""
    wanted = rendering.named(chart.objects, "Certificate", "croupier-webhook")["spec"]
    hosts = (*wanted["dnsNames"], "127.0.0.1")  # there are no Services in this environment
    before: Keyring | None = chart.results.get("certificate")
    made = certificates.after_step(
        RotationStep.ISSUE, before, datetime.now(UTC), hosts=hosts, rules=ROTATION_RULES
    )
    chart.results["certificate"] = made
    _store(chart, wanted["secretName"], made)
    _mount(chart.folder / "tls", made)
    _inject(chart, made)
    return made


def served(port: int) -> bytes:
    return ssl.get_server_certificate(("127.0.0.1", port)).encode()


def _store(chart: ChartEnv, name: str, made: Keyring) -> None:
    parts = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.bundle}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {key: b64encode(content).decode() for key, content in parts.items()},
    }
    chart.lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(secret))


def _mount(folder: Path, made: Keyring) -> None:
    """Update the volume like a kubelet: a new folder, and an atomic swap of the link."""
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


def _inject(chart: ChartEnv, made: Keyring) -> None:
    for configuration in rendering.of_kind(
        chart.objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    ):
        assert configuration["metadata"]["annotations"][INJECT_CA] == f"{NAMESPACE}/croupier-webhook"
        bundle = b64encode(made.bundle).decode()
        steps = [
            {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": bundle}
            for at in range(len(configuration["webhooks"]))
        ]
        name = configuration["metadata"]["name"]
        chart.lab.kubectl("patch", configuration["kind"], name, "--type=json", f"-p={json.dumps(steps)}")
