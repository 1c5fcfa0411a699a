"""The webhook answers a real API server by its client certificate only, configured as in docs/security.md."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from croupier.kube.client import api_client, config
from croupier.kube.client.errors import ApiError
from croupier.kube.serving import certificates
from tests.admission import webhook_env as envs
from tests.admission.webhook_env import WebhookEnv

NAME = "kube-apiserver"


def client_files(folder: Path) -> Path:
    """A CA and the client certificate of the API server; the CA's file."""
    now = datetime.now(UTC)
    end = now + timedelta(days=1)
    authority = certificates.new_authority("webhook clients", now=now, end=end)
    client = certificates.issue(certificates.common_name(NAME), authority, now=now, end=end, client=True)
    (folder / "ca.crt").write_bytes(certificates.pem(authority.certificate))
    (folder / "client.crt").write_bytes(certificates.pem(client.certificate))
    (folder / "client.key").write_bytes(certificates.key_pem(client.key))
    return folder / "ca.crt"


def admission_configuration(folder: Path, host: str) -> Path:
    """The files of `--admission-control-config-file`, in JSON, which is YAML as well."""
    user = {"client-certificate": str(folder / "client.crt"), "client-key": str(folder / "client.key")}
    clients = {"apiVersion": "v1", "kind": "Config", "users": [{"name": host, "user": user}]}
    (folder / "clients.yaml").write_text(json.dumps(clients))
    group = "apiserver.config.k8s.io/v1"
    webhooks = {
        "apiVersion": group,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "clients.yaml"),
    }
    plugins: list[dict[str, Any]] = [
        {"name": name, "configuration": webhooks}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    document = {"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": plugins}
    (folder / "admission.yaml").write_text(json.dumps(document))
    return folder / "admission.yaml"


async def test_only_an_api_server_with_the_certificate_is_answered(private_lab, tmp_path):
    port, authority = envs.free_port(), client_files(tmp_path)
    file = admission_configuration(tmp_path, f"127.0.0.1:{port}")
    lab = await private_lab(extra={"kube-apiserver": (f"--admission-control-config-file={file}",)})
    namespace = "certified"
    lab.kubectl("create", "namespace", namespace)
    lab.kubectl("create", "serviceaccount", "default", "-n", namespace)
    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        options = envs.webhook_options(namespace, port, failure_policy="Fail")
        env = WebhookEnv(api, namespace, options, port, client_authority=authority)
        env.client_names = frozenset({NAME})
        async with env.open():
            pod = await env.create("answered", annotations={"gpu.mps.io/x": "1"})
            assert "stamp" in pod.metadata.annotations

        env.client_names = frozenset({"another name"})
        async with env.replica():
            with pytest.raises(ApiError, match="failed calling webhook"):
                await env.create("refused", annotations={"gpu.mps.io/x": "1"})
