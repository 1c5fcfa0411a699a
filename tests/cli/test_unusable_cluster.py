"""A cluster that does not answer, or that has none of Croupier's kinds, is one sentence for every verb."""

import asyncio

import pytest

from croupier.cli import cluster, cluster_errors
from tests.cli import verbs
from tests.cli.env import CommandResult


def sentence(ended: CommandResult) -> str:
    """The only line on stderr, with nothing on stdout and exit code 1."""
    assert (ended.code, ended.out) == (1, ""), ended
    [line] = ended.err.splitlines()
    assert line.startswith("croupier: ")
    return line


def test_the_table_has_every_verb_that_talks_to_a_cluster():
    talk = {
        name
        for name, command in verbs.leaves().items()
        if any(param.name == "kubeconfig" for param in command.params)
    }
    assert talk - set(verbs.PROCESSES) == verbs.CLUSTER_VERBS.keys()


@pytest.mark.parametrize("verb", verbs.CLUSTER_VERBS)
def test_a_refused_port(verb, tmp_path):
    file = verbs.kubeconfig(tmp_path, "https://127.0.0.1:9")
    said = sentence(verbs.call(*verbs.CLUSTER_VERBS[verb], "--kubeconfig", str(file)))

    assert said == (
        "croupier: cannot reach https://127.0.0.1:9: Connection refused (context production); check that the "
        f"API server runs and can be reached, or {cluster_errors.OTHER_CLUSTER}."
    )


@pytest.mark.parametrize("verb", verbs.CLUSTER_VERBS)
def test_a_port_that_never_answers(verb, tmp_path, silent):
    server, peers = silent
    file = verbs.kubeconfig(tmp_path, server)
    env = {cluster.TIMEOUT_VARIABLE: "0.05"}
    said = sentence(verbs.call(*verbs.CLUSTER_VERBS[verb], "--kubeconfig", str(file), env=env))

    assert f"{server} did not answer GET /apis within 0.05 s (context production); check" in said
    assert len(peers) == 1  # one attempt: the sentence comes after the timeout, not after six of them


@pytest.mark.parametrize("verb", verbs.CLUSTER_VERBS)
def test_no_such_kubeconfig(verb):
    said = sentence(verbs.call(*verbs.CLUSTER_VERBS[verb], "--kubeconfig", "/no/such/file"))

    assert said.startswith("croupier: cannot read kubeconfig /no/such/file: ")
    assert "check the path" in said


@pytest.mark.parametrize("verb", [verb for verb in verbs.CLUSTER_VERBS if verb != "scheduler-config"])
def test_no_such_context(verb, tmp_path):
    file = verbs.kubeconfig(tmp_path, "https://127.0.0.1:9")
    said = sentence(verbs.call(*verbs.CLUSTER_VERBS[verb], "--kubeconfig", str(file), "--context", "staging"))

    assert said == f"croupier: {file} has no context 'staging'; it has: production"


def test_the_first_answer_has_two_seconds_unless_the_variable_says_otherwise(monkeypatch):
    monkeypatch.delenv(cluster.TIMEOUT_VARIABLE, raising=False)
    assert cluster.answer_timeout() == 2.0
    monkeypatch.setenv(cluster.TIMEOUT_VARIABLE, "30")
    assert cluster.answer_timeout() == 30.0


@pytest.mark.parametrize("value", ["soon", "0", "-1", "100000", "nan"])
def test_an_invalid_timeout_is_a_usage_error(value):
    ended = verbs.call("cards", env={cluster.TIMEOUT_VARIABLE: value})

    assert ended.code == 2
    assert ended.err.startswith(f"croupier: {cluster.TIMEOUT_VARIABLE}={value}: must be ")


WITHOUT_KINDS = {
    "fallback": (0, ""),
    "available": (0, ""),
    "usage": (1, "no usage is recorded in namespace"),
    "market status": (0, "No market agent is running"),
    "scheduler-config": (0, "kind: KubeSchedulerConfiguration"),
    "doctor": (1, "Croupier is not installed"),
    "uninstall": (0, "Nothing to remove."),
}
"""Verbs that need none of Croupier's kinds: exit code and words."""


async def test_a_cluster_without_the_kinds(private_lab, tmp_path):
    lab = await private_lab()
    for verb, command in verbs.CLUSTER_VERBS.items():
        if verb == "ui":
            continue  # it serves the page, which says so itself
        ended = await asyncio.to_thread(verbs.call, *command, "--kubeconfig", str(lab.kubeconfig))
        if verb in WITHOUT_KINDS:
            code, words = WITHOUT_KINDS[verb]
            assert (ended.code, words in ended.out + ended.err) == (code, True), (verb, ended)
            continue
        said = sentence(ended)
        assert "are not installed in context " in said, verb
        assert "`croupier doctor` prints the command" in said, verb
