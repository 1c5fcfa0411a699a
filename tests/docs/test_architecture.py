"""docs/architecture.md draws the layers that are linted, and pages name only files that exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs import blocks
from tests.docs.blocks import ROOT

ARCHITECTURE = ROOT / "docs/architecture.md"
PAGES = (ARCHITECTURE, ROOT / "docs/pod-lifecycle.md", ROOT / "CONTRIBUTING.md")
SOURCES = (ROOT, ROOT / "src", ROOT / "src/croupier", ROOT / "tests")
FOLDERS = ("src", "tests", "tools", *(path.name for path in (ROOT / "src/croupier").iterdir()))
FILE = re.compile(r"(?<![\w./:<-])[a-z_]+(?:/[a-z_0-9]+)+(?:\.py)?/?(?![\w.<-])")
"""A module or folder, such as core/claims/claim.py, core/claims or src/croupier/core."""
OTHERS = {"build/site", "pods/resize", "pods/status"}
"""A folder that make creates, and subresources of the API."""


def missing(text: str) -> list[str]:
    """Modules and folders that the text names and that do not exist."""
    named = {name.removesuffix("/") for name in FILE.findall(text)} - OTHERS
    return sorted(name for name in named if not any(_exists(source / name) for source in SOURCES))


def _exists(path: Path) -> bool:
    return path.exists() or path.with_suffix(".py").exists()


def contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    linted: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return [contract for contract in linted if contract["type"] == "layers"]


def drawing(contract: dict[str, Any]) -> str:
    return " ─► ".join(contract["layers"]).replace("(", "").replace(")", "")


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["id"])
def test_the_page_draws_the_layers_of_every_contract(contract):
    page = " ".join(ARCHITECTURE.read_text().split())

    assert f"``` {drawing(contract)} ```" in page


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: contract["id"])
def test_the_page_describes_every_layer_of_every_contract(contract):
    page = ARCHITECTURE.read_text()
    (container,) = contract["containers"]
    folder = ROOT / "src" / container.replace(".", "/")
    layers = [name for name in re.findall(r"\w+", " ".join(contract["layers"])) if (folder / name).is_dir()]
    within = "" if container == "croupier" else f"{folder.name}/"

    assert layers
    assert [name for name in layers if f"`{within}{name}/`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_a_page_names_exists(page):
    assert FILE.search(page.read_text())
    assert missing(page.read_text()) == []


@pytest.mark.parametrize("page", blocks.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_any_page_names_exists(page):
    assert [name for name in missing(page.read_text()) if name.split("/")[0] in FOLDERS] == []


@pytest.mark.parametrize("page", blocks.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_any_page_names_exists(page):
    named = {span.rsplit("/")[-1].removesuffix(".py") for _, span in blocks.spans(page)}
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}

    assert {name for name in named if re.fullmatch(r"test_\w+", name)} <= {*tests, "test_"}


def test_a_missing_file_is_found():
    text = (
        "`core/claims/claim.py`, `src/croupier/core/<subject>/`, https://a/b and pods/resize exist; "
        "`core/claims/gone.py`, `src/croupier/book` and ──► controllers/ledger/gone do not"
    )

    assert missing(text) == ["controllers/ledger/gone", "core/claims/gone.py", "src/croupier/book"]
