"""What a reader copies from the pages works, in the order of the page.

Blocks with the comment `<!-- run: lab -->` are typed on one lab, raised and ended by the commands of the
guide; every page leaves it as it found it.
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

from croupier.lab import binaries
from croupier.lab.binaries import Sources
from tests.docs import blocks
from tests.docs.blocks import ROOT, Block
from tests.docs.shell import Shell

SECONDS = 180

GUIDE = ROOT / "docs/guide.md"


def marked(page: Path, where: str) -> list[Block]:
    return [one for one in blocks.blocks(page) if one.runs.split(", ")[0] == where]


def with_blocks(where: str) -> list[Path]:
    return [page for page in blocks.pages() if marked(page, where)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory, pytestconfig) -> Iterator[Shell]:
    """Somebody who has raised the lab of the guide."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("raises a lab of its own, and --kubeconfig aims this run at another cluster")
    home = tmp_path_factory.mktemp("home")
    assets: Path | None = pytestconfig.getoption("--lab-bin")
    found = {"KUBEBUILDER_ASSETS": str(assets.absolute())} if assets else {}
    try:
        Shell(home, settings=found).types(marked(GUIDE, "lab up"))
        config = home / "labs/default/kubeconfig"
        yield Shell(home, tools=(_kubectl(home),), settings={**found, "KUBECONFIG": str(config)})
    finally:
        Shell(home, settings=found).types(marked(GUIDE, "lab down"))


def _kubectl(home: Path) -> Path:
    """The folder with the kubectl that fits the lab."""
    from croupier.lab import record
    from croupier.lab.lab import Lab

    found = record.load(home / "labs/default")
    assert found is not None
    return Lab(found).cluster.program.parent


@pytest.mark.parametrize("page", with_blocks("lab"), ids=lambda page: page.stem)
def test_a_page_works_as_printed(page, reader):
    reader.types(marked(page, "lab"))


def test_the_first_page_works_on_such_a_lab(reader):
    """README raises and ends a lab of its own; that is done here already."""
    found = blocks.blocks(ROOT / "README.md")
    (walk,) = (one for one in found if "croupier lab up" in one.text and not one.runs)
    typed = [
        line for line in walk.text.splitlines() if not line.startswith(("make", "export", "croupier lab"))
    ]
    made = [line.removeprefix("kubectl apply ") for line in typed if line.startswith("kubectl apply ")]
    assert made

    reader.types(
        [
            replace(walk, text="\n".join(typed)),
            replace(walk, text="\n".join(f"kubectl delete {one}" for one in reversed(made))),
        ]
    )


@pytest.mark.parametrize("page", with_blocks("here"), ids=lambda page: page.stem)
def test_what_needs_no_cluster_works_as_printed(page, tmp_path):
    Shell(tmp_path, settings={"REGISTRY": "registry.example"}).types(marked(page, "here"))


GUIDES = sorted(ROOT.glob("docs/install-*.md"))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_values_of_an_install_guide_fit_the_chart(page):
    schema = json.loads((ROOT / "charts/croupier/values.schema.json").read_text())
    said = re.search(r"cat > values.yaml <<EOF\n(.*?)\n *EOF", page.read_text(), re.DOTALL)
    assert said is not None
    values = yaml.safe_load(textwrap.dedent(said[1]))

    assert [error.message for error in Draft7Validator(schema).iter_errors(values)] == []


async def test_an_installation_works_as_printed(private_lab, tmp_path):
    """Up to what a cluster with nodes would make of it: tests/install has that."""
    helm = binaries.search(["helm"], Sources()).found.get("helm")
    if helm is None:
        pytest.skip("there is no helm: croupier lab build --helm")
    lab = await private_lab()
    settings = {"KUBECONFIG": str(lab.kubeconfig), "REGISTRY": "registry.example"}
    reader = Shell(tmp_path, tools=(lab.cluster.program.parent, helm.path.parent), settings=settings)

    (page,) = with_blocks("install")
    reader.types(marked(page, "install"))


def test_a_block_that_fails_is_named(tmp_path):
    page = ROOT / "docs/page.md"
    fine, broken = Block(page, 3, "sh", "true", "lab"), Block(page, 7, "sh", "false", "lab")

    with pytest.raises(AssertionError, match=r"exit code 1:\n--- docs/page.md:3\n--- docs/page.md:7\n$"):
        Shell(tmp_path).types([fine, broken, fine])


def test_a_block_may_say_how_it_ends(tmp_path):
    page = ROOT / "docs/page.md"

    Shell(tmp_path).types([Block(page, 3, "sh", "exit_with() { return 3; }\nexit_with", "lab, ends with 3")])
    with pytest.raises(AssertionError, match=r"docs/page\.md:7"):
        Shell(tmp_path).types([Block(page, 7, "sh", "true", "lab, ends with 1")])


def test_the_comment_counts_for_the_next_block_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- run: lab -->\n\n    one\n\nText.\n\n    two\n\n<!-- run: lab -->\n```sh\nthree\n```\n"
    )

    assert [(one.text.strip(), one.runs) for one in blocks.blocks(page)] == [
        ("one", "lab"),
        ("two", ""),
        ("three", "lab"),
    ]
