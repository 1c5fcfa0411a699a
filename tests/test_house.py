"""The house keeps its own rules: what the documents say about the tree is true of the tree."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_make_alone_prints_a_line_for_every_command():
    printed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    promised = {"setup", "demo", "test", "check", "bench", "lab", "clean"}
    assert promised <= set(re.findall(r"^  make (\S+) +\S", printed, re.MULTILINE))


def test_the_drawn_rooms_are_the_linted_rooms():
    linted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    drawn = re.search(r"^cli ─► .*$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)

    assert drawn is not None
    assert drawn[0] == " ─► ".join(linted).replace("(", "").replace(")", "")


def test_every_room_stands_in_the_table():
    table = (ROOT / "docs/architecture.md").read_text()
    rooms = [path.name for path in (ROOT / "src/croupier").iterdir() if (path / "__init__.py").exists()]

    assert rooms
    assert [room for room in rooms if f"`{room}/`" not in table] == []


def test_every_dependency_has_its_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = [re.split(r"[<>=]", line)[0] for line in wanted]
    reasons = (ROOT / "docs/dependencies.md").read_text()

    stubs = "types-"  # typing stubs follow their package
    assert [name for name in names if name not in reasons and not name.startswith(stubs)] == []


def test_the_lock_pins_hashes_and_names_no_address():
    lock = (ROOT / "requirements.lock").read_text()

    assert "--hash=sha256:" in lock
    assert "://" not in lock


def test_links_in_the_documents_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []
