"""Every command in the documentation exists: its verbs, options, files and make targets."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs import blocks, typed
from tests.docs.blocks import ROOT, SHELLS

FOLDERS = (
    "bench/",
    "charts/",
    "config/",
    "deployments/",
    "docs/",
    "examples/",
    "image/",
    "scenarios/",
    "scripts/",
)
WRITTEN_BY_MAKE = "bench/results/"


Line = tuple[str, list[str], bool]
"""The place, the words, and whether they are a whole line rather than a mention in the text."""


@cache
def lines() -> tuple[Line, ...]:
    return tuple(_lines())


def _lines() -> Iterator[Line]:
    for page in blocks.pages():
        for block in blocks.blocks(page):
            if block.language in SHELLS:
                yield from ((block.where, words, True) for words in typed.commands(block.text))
        for number, span in blocks.spans(page):
            plain = re.sub(r"\\?\||[\[\]]", " ", span)
            where = f"{page.relative_to(ROOT)}:{number}"
            yield from ((where, words, False) for words in typed.commands(plain))


def test_every_croupier_command_has_these_verbs_and_options():
    errors = [
        f"{where}: {' '.join(words)}: {problem}"
        for where, words, whole in lines()
        if (arguments := typed.croupier(words)) is not None
        and (problem := typed.problem(arguments, whole=whole))
    ]

    assert errors == []


def test_every_file_that_a_command_names_exists():
    missing = [
        f"{where}: {word}"
        for where, words, whole in lines()
        for word in (words if whole else ())
        if word.startswith(FOLDERS) and not word.startswith(WRITTEN_BY_MAKE)
        if not any(ROOT.glob(word.rstrip("/")))
    ]

    assert missing == []


def test_every_make_target_exists():
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = [(where, words) for where, words, _ in lines() if words[0] == "make" and len(words) > 1]

    assert calls
    assert [f"{where}: make {words[1]}" for where, words in calls if words[1] not in known] == []


WRONG = {
    "an unknown verb": ("allocate cards", "croupier has no verb allocate"),
    "an unknown nested verb": ("market fly", "croupier market has no verb fly"),
    "an unknown option": ("lab up --gpu H100:8", "croupier lab up has no option --gpu"),
    "an unknown option with an attached value": (
        "ledger --form=json",
        "croupier ledger has no option --form",
    ),
    "too many arguments": ("ledger node-1 node-2", "croupier ledger takes 1 arguments, not 2"),
    "too few arguments": ("assign node-1/0", "croupier assign needs 2 arguments"),
}


@pytest.mark.parametrize(("line", "problem"), WRONG.values(), ids=WRONG)
def test_an_invalid_command_is_reported(line, problem):
    assert typed.problem(line.split(), whole=True) == problem


FINE = (
    "lab up --nodes 2 --gpus=H100:8 --detach",
    "lab kubectl get pods -A --watch",
    "pools -o json",
    "pools show team-a",
    "explain pod default/web --help",
    "scheduler-config --no-leader-elect",
)


@pytest.mark.parametrize("line", FINE)
def test_a_valid_command_passes(line):
    assert typed.problem(line.split(), whole=True) == ""


def test_commands_are_found_like_in_a_shell():
    text = (
        "export KUBECONFIG=$(sudo croupier lab kubeconfig)   # croupier allocate\n"
        "sudo -E croupier market run \\\n  --node here &\n"
        "kubectl apply -f - <<EOF\ncroupier: allocate\nEOF\n"
        "$ croupier ledger | head"
    )

    commands = [
        arguments for words in typed.commands(text) if (arguments := typed.croupier(words)) is not None
    ]
    assert commands == [["lab", "kubeconfig"], ["market", "run", "--node", "here"], ["ledger"]]
