"""`croupier ui` refuses unsafe and contradictory options with one sentence, before it reads the cluster."""

import pytest

from tests.cli.env import croupier

NO_CLUSTER = "--kubeconfig=/nowhere/kubeconfig"
USAGE, FAILED = 2, 1

REFUSED = {
    "a mode that does not exist": (
        ["--mode=open"],
        USAGE,
        "--mode open: must be local, bearer, token or headers.",
    ),
    "an action that does not exist": (
        ["--actions=cards,pods"],
        USAGE,
        "--actions pods: must be cards, pools or reservations.",
    ),
    "plain HTTP for everybody": (
        ["--mode=token"],
        USAGE,
        "mode token would serve plain HTTP on 0.0.0.0:8642",
    ),
    "plain HTTP for everybody in mode bearer": (
        ["--mode=bearer", "--listen=10.0.0.1:80"],
        USAGE,
        "set --tls-cert and --tls-key, or --behind-proxy",
    ),
    "a certificate without its key": (
        ["--mode=token", "--tls-cert=/tls.crt"],
        USAGE,
        "--tls-cert and --tls-key must be set together",
    ),
    "a key without its certificate": (["--tls-key=/tls.key"], USAGE, "must be set together"),
    "a client CA without a certificate": (
        ["--mode=headers", "--client-ca=/ca.crt"],
        USAGE,
        "--client-ca needs both",
    ),
    "not an address": (["--listen=here"], USAGE, "--listen: address 'here' is not HOST:PORT"),
    "not an address for health": (["--health=here"], USAGE, "--health: address 'here' is not HOST:PORT"),
    "not a log level": (["--log-level=loud"], USAGE, "--log-level:"),
    "your kubeconfig for the whole network": (
        ["--listen=0.0.0.0:8642"],
        FAILED,
        "mode local acts with your kubeconfig and must listen on loopback",
    ),
    "headers that anybody may send": (
        ["--mode=headers", "--listen=127.0.0.1:0"],
        FAILED,
        "mode headers needs --tls-cert, --tls-key and --client-ca",
    ),
    "headers without a client CA": (
        ["--mode=headers", "--tls-cert=/tls.crt", "--tls-key=/tls.key"],
        FAILED,
        "only if a client certificate proves that it is the proxy",
    ),
}


@pytest.mark.parametrize(("options", "code", "sentence"), REFUSED.values(), ids=REFUSED)
def test_unsafe_options_are_refused(options, code, sentence):
    ended = croupier("ui", "--no-open", NO_CLUSTER, *options)
    assert (ended.code, ended.out) == (code, "")
    assert sentence in ended.err
    assert len(ended.err.strip().splitlines()) == 1, ended.err


def test_a_kubeconfig_that_does_not_exist_is_told():
    ended = croupier("ui", "--no-open", NO_CLUSTER)
    assert (ended.code, "/nowhere/kubeconfig" in ended.err) == (FAILED, True), ended.err
