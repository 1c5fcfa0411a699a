"""The commands of the documentation work, in the order of each page.

Blocks with the comment `<!-- run: lab -->` run in one lab. The commands of the guide start and stop it.
Every page leaves the lab as it was.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from croupier_lab import binaries
from croupier_lab.binaries import BinarySources
from tests.docs import blocks
from tests.docs.blocks import ROOT, Block
from tests.docs.shell import Shell

SECONDS = 100

GUIDE = ROOT / "docs/guide.md"


def with_blocks(where: str) -> list[Path]:
    return [page for page in blocks.pages() if blocks.marked(page, where)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory, pytestconfig) -> Iterator[Shell]:
    """A shell in which the lab of the guide was started."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("starts a lab, but --kubeconfig selects another cluster for this run")
    home = tmp_path_factory.mktemp("home")
    assets: Path | None = pytestconfig.getoption("--lab-bin")
    settings = {"KUBEBUILDER_ASSETS": str(assets.absolute())} if assets else {}
    try:
        Shell(home, settings=settings).types(blocks.marked(GUIDE, "lab up"))
        config = home / "labs/default/kubeconfig"
        yield Shell(home, tools=(_kubectl(home),), settings={**settings, "KUBECONFIG": str(config)})
    finally:
        Shell(home, settings=settings).types(blocks.marked(GUIDE, "lab down"))


def _kubectl(home: Path) -> Path:
    """The folder of the kubectl that matches the lab."""
    from croupier_lab import record
    from croupier_lab.lab import Lab

    state = record.load(home / "labs/default")
    assert state is not None
    return Lab(state).cluster.program.parent


@pytest.mark.parametrize("page", with_blocks("lab"), ids=lambda page: page.stem)
def test_a_page_works_as_printed(page, reader):
    reader.types(blocks.marked(page, "lab"))


def test_the_readme_works_in_such_a_lab(reader):
    """The README starts and stops its own lab; here the lab of the guide is used instead."""
    (walk,) = (
        block
        for block in blocks.blocks(ROOT / "README.md")
        if "croupier lab up" in block.text and not block.runs
    )
    skipped = ("make", "export", "croupier lab")
    lines = [line for line in walk.text.splitlines() if not line.startswith(skipped)]
    applied = [line.removeprefix("kubectl apply ") for line in lines if line.startswith("kubectl apply ")]
    assert applied

    reader.types(
        [
            replace(walk, text="\n".join(lines)),
            replace(walk, text="\n".join(f"kubectl delete {options}" for options in reversed(applied))),
        ]
    )


@pytest.mark.parametrize("page", with_blocks("here"), ids=lambda page: page.stem)
def test_commands_without_a_cluster_work_as_printed(page, tmp_path):
    Shell(tmp_path, settings={"REGISTRY": "registry.example"}).types(blocks.marked(page, "here"))


GUIDES = sorted(ROOT.glob("docs/install-*.md"))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_values_of_an_install_guide_match_the_chart(page):
    schema = json.loads((ROOT / "charts/croupier/values.schema.json").read_text())
    document = re.search(r"cat > values.yaml <<EOF\n(.*?)\n *EOF", page.read_text(), re.DOTALL)
    assert document is not None
    values = yaml.safe_load(textwrap.dedent(document[1]))

    assert [error.message for error in Draft7Validator(schema).iter_errors(values)] == []


async def test_an_installation_works_as_printed(private_lab, tmp_path):
    """Without nodes; tests/install covers an installation with nodes."""
    helm = binaries.search(["helm"], BinarySources()).found.get("helm")
    if helm is None:
        pytest.skip("helm is missing: run croupier lab build --helm")
    lab = await private_lab()
    settings = {"KUBECONFIG": str(lab.kubeconfig), "REGISTRY": "registry.example"}
    reader = Shell(tmp_path, tools=(lab.cluster.program.parent, helm.path.parent), settings=settings)

    (page,) = with_blocks("install")
    reader.types(blocks.marked(page, "install"))


def test_a_block_that_fails_is_named(tmp_path):
    page = ROOT / "docs/page.md"
    fine, broken = Block(page, 3, "sh", "true", "lab"), Block(page, 7, "sh", "false", "lab")

    with pytest.raises(AssertionError, match=r"exit code 1:\n--- docs/page.md:3\n--- docs/page.md:7\n$"):
        Shell(tmp_path).types([fine, broken, fine])


def test_a_block_can_expect_an_exit_code(tmp_path):
    page = ROOT / "docs/page.md"

    Shell(tmp_path).types([Block(page, 3, "sh", "exit_with() { return 3; }\nexit_with", "lab, ends with 3")])
    with pytest.raises(AssertionError, match=r"docs/page\.md:7"):
        Shell(tmp_path).types([Block(page, 7, "sh", "true", "lab, ends with 1")])


def test_the_comment_applies_only_to_the_next_block(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: lab -->\n\n    one\n\nText.\n\n    two\n\n<!-- run: lab -->\n```sh\nthree\n```\n"
    )

    assert [(block.text.strip(), block.runs) for block in blocks.blocks(page)] == [
        ("one", "lab"),
        ("two", ""),
        ("three", "lab"),
    ]
