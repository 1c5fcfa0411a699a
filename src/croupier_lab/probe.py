"""A minimal synchronous HTTP client, for readiness probes and etcd's JSON gateway."""

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from croupier_lab.certificates import KeyPair

TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """URL of a component; `authority` enables TLS, `pair` is the client certificate."""

    url: str
    authority: Path | None = None
    pair: KeyPair | None = None


def get(endpoint: Endpoint) -> tuple[int, str]:
    """Status and body; raises OSError if there is no answer."""
    return _request(endpoint, "GET", None)


def post(endpoint: Endpoint, body: str) -> tuple[int, str]:
    return _request(endpoint, "POST", body)


def _request(endpoint: Endpoint, method: str, body: str | None) -> tuple[int, str]:
    address = urlsplit(endpoint.url)
    connection = _connection(endpoint, address.hostname or "", address.port)
    try:
        connection.request(method, f"{address.path}?{address.query}".rstrip("?"), body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise OSError(f"{endpoint.url}: {error!r}") from error
    finally:
        connection.close()


def _connection(endpoint: Endpoint, host: str, port: int | None) -> http.client.HTTPConnection:
    if endpoint.authority is None:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    context = ssl.create_default_context(cafile=str(endpoint.authority))
    if endpoint.pair is not None:
        context.load_cert_chain(endpoint.pair.certificate, endpoint.pair.key)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
