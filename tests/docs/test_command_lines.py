"""Every command in the documents exists: its verbs, its options, the files and targets it names."""

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
"""Where, the words, and whether it is a whole line rather than a mention in the text."""


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
    wrong = [
        f"{where}: {' '.join(words)}: {complaint}"
        for where, words, whole in lines()
        if (said := typed.croupier(words)) is not None and (complaint := typed.problem(said, whole=whole))
    ]

    assert wrong == []


def test_every_file_a_command_names_is_there():
    missing = [
        f"{where}: {word}"
        for where, words, whole in lines()
        for word in (words if whole else ())
        if word.startswith(FOLDERS) and not word.startswith(WRITTEN_BY_MAKE)
        if not any(ROOT.glob(word.rstrip("/")))
    ]

    assert missing == []


def test_every_make_target_is_there():
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = [(where, words) for where, words, _ in lines() if words[0] == "make" and len(words) > 1]

    assert asked
    assert [f"{where}: make {words[1]}" for where, words in asked if words[1] not in known] == []


WRONG = {
    "a verb that is not there": ("deal cards", "croupier has no verb deal"),
    "a verb below another": ("market fly", "croupier market has no verb fly"),
    "an option": ("lab up --gpu H100:8", "croupier lab up has no option --gpu"),
    "an option with its value attached": ("ledger --form=json", "croupier ledger has no option --form"),
    "too many words": ("ledger node-1 node-2", "croupier ledger takes 1 words, not 2"),
    "too few": ("assign node-1/0", "croupier assign needs 2 words"),
}


@pytest.mark.parametrize(("line", "complaint"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_seen(line, complaint):
    assert typed.problem(line.split(), whole=True) == complaint


FINE = (
    "lab up --nodes 2 --gpus=H100:8 --detach",
    "lab kubectl get pods -A --watch",
    "pools -o json",
    "pools show team-a",
    "explain pod default/web --help",
    "scheduler-config --no-leader-elect",
)


@pytest.mark.parametrize("line", FINE)
def test_what_can_be_typed_passes(line):
    assert typed.problem(line.split(), whole=True) == ""


def test_commands_are_found_wherever_a_shell_would():
    text = (
        "export KUBECONFIG=$(sudo croupier lab kubeconfig)   # croupier deal\n"
        "sudo -E croupier market run \\\n  --node here &\n"
        "kubectl apply -f - <<EOF\ncroupier: deal\nEOF\n"
        "$ croupier ledger | head"
    )

    found = [said for words in typed.commands(text) if (said := typed.croupier(words)) is not None]
    assert found == [["lab", "kubeconfig"], ["market", "run", "--node", "here"], ["ledger"]]
