"""The root command: help, version, and errors."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from croupier import cli
from croupier.capacity.manager import CapacityManagerKind
from croupier.cli import terminal
from croupier.core.model import namespaces
from croupier.core.placement.card_selection import Strategy
from tests.cli.command import CROUPIER

SECONDS = 30


def croupier(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CROUPIER, *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"COLUMNS": "120", "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )


def test_help_groups_the_commands():
    shown = croupier("--help")

    assert shown.returncode == 0
    for heading in ("Local clusters", "About"):
        assert heading in shown.stdout
    for verb in ("lab", "demo", "version"):
        assert verb in shown.stdout


def test_version_prints_text_and_json():
    text = croupier("version").stdout.strip()
    parsed = json.loads(croupier("version", "-o", "json").stdout)

    assert text == f"croupier {parsed['croupier']}"
    assert croupier("--version").stdout.strip() == text


@pytest.mark.parametrize(
    "typed",
    [
        ["--kubeconfig", "/no/such/file", "cards"],
        ["cards", "--kubeconfig", "/no/such/file"],
        ["--kubeconfig", "/no/such/other", "explain", "pod", "x", "--kubeconfig", "/no/such/file"],
        ["--kubeconfig", "/no/such/file", "pools", "show", "x"],
        ["--kubeconfig", "/no/such/file", "market", "status"],
    ],
    ids=" ".join,
)
def test_global_options_may_stand_before_or_after_the_verb(typed):
    ended = croupier(*typed)

    assert ended.returncode == 1
    assert "cannot read kubeconfig /no/such/file:" in ended.stderr


def test_an_option_before_the_verb_does_not_disturb_verbs_without_it():
    assert croupier("--namespace", "team-a", "version").returncode == 0


@pytest.mark.parametrize("typed", [["deal"], ["lab", "fly"], ["version", "--loud"]], ids=" ".join)
def test_unknown_commands_and_options_exit_with_2(typed):
    refused = croupier(*typed)

    assert refused.returncode == 2
    assert typed[-1] in refused.stderr
    assert "Traceback" not in refused.stderr


def modules_after(*statements: str) -> set[str]:
    """The modules that a new Python has loaded after these statements."""
    command = [sys.executable, "-c", "\n".join(["import sys", *statements, "print(*sys.modules)"])]
    return set(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_help_does_not_import_heavy_dependencies():
    """A kubectl plugin starts for every completion: under 0.4 s, most of which is typer itself."""
    loaded = modules_after("import croupier.cli")

    heavy = {"aiohttp", "cryptography", "uvicorn", "prometheus_client", "psutil"}
    assert not (heavy | {"asyncio", "logging", "msgspec", "rich", "yaml"}) & loaded
    assert {
        name for name in loaded if name.startswith("croupier.") and not name.startswith("croupier.cli")
    } == set()


LISTINGS = ("available", "cards", "explain", "ledger", "pools", "reservations", "usage", "what_if")
FOR_SERVERS = {"cryptography", "grpc", "jsonschema", "prometheus_client", "rich", "structlog", "uvicorn"}
FOR_OTHERS = {
    "manager": {"cryptography", "grpc", "jsonschema", "pynvml"},
    "extender": {"cryptography", "grpc", "jsonschema", "pynvml"},
    "webhook": {"grpc", "jsonschema", "pynvml"},
    "node": {"cryptography", "jsonschema"},
    "market_run": {"cryptography", "grpc", "jsonschema", "pynvml"},
}


def imported_by(verb: str) -> set[str]:
    """The modules that are loaded once every import inside the verb's functions has run."""
    syntax = ast.parse(Path(cli.__file__).with_name(f"{verb}.py").read_text())
    statements = [
        ast.unparse(node)
        for function in ast.walk(syntax)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert statements
    return modules_after("import croupier.cli", *statements)


@pytest.mark.parametrize("verb", LISTINGS)
def test_a_listing_does_not_import_what_only_servers_need(verb):
    assert not FOR_SERVERS & imported_by(verb)


@pytest.mark.parametrize("verb", FOR_OTHERS)
def test_a_process_does_not_import_what_only_others_need(verb):
    assert not FOR_OTHERS[verb] & imported_by(verb)


GROUPS = {
    "inventory": {"inventory"},
    "bootstrap": {"bootstrap"},
    "pools": {"cards", "pools"},
    "elected_ledger": {"ledger"},
    "limits": {"limits"},
}
"""The modules of wiring with a group of controllers, and the folders of controllers that each needs."""


@pytest.mark.parametrize("group", GROUPS)
def test_a_manager_imports_only_the_controllers_that_it_runs(group):
    modules = modules_after("import croupier.wiring.manager", f"import croupier.wiring.{group}")

    folders = {name.split(".")[2] for name in modules if name.startswith("croupier.controllers.")}
    assert folders - {"shared"} == GROUPS[group]


def test_children_of_tests_use_bytecode():
    """A process without bytecode needs three times the CPU to start."""
    code = "import sys; print(sys.dont_write_bytecode)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown == "False\n"


def test_the_options_offer_every_choice():
    assert set(terminal.STRATEGIES) == set(get_args(Strategy))
    assert set(terminal.CAPACITY_MANAGERS) == set(get_args(CapacityManagerKind))


def test_the_default_namespace_is_the_same_as_in_the_processes():
    assert terminal.DEFAULT_NAMESPACE == namespaces.DEFAULT_NAMESPACE
