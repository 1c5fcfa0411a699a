"""The documentation matches the repository."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_make_lists_every_command():
    printed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    commands = {"setup", "demo", "test", "check", "bench", "lab", "clean"}
    assert commands <= set(re.findall(r"^  make (\S+) +\S", printed, re.MULTILINE))


def test_the_documented_layers_are_the_linted_layers():
    linted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0][
        "layers"
    ]
    documented = re.search(r"^cli ─► .*$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)

    assert documented is not None
    assert documented[0] == " ─► ".join(linted).replace("(", "").replace(")", "")


def test_every_package_is_documented():
    table = (ROOT / "docs/architecture.md").read_text()
    packages = [path.name for path in (ROOT / "src/croupier").iterdir() if (path / "__init__.py").exists()]

    assert packages
    assert [package for package in packages if f"`{package}/`" not in table] == []


def test_every_dependency_is_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = [re.split(r"[<>=]", line)[0] for line in wanted]
    reasons = (ROOT / "docs/dependencies.md").read_text()

    stubs = "types-"  # typing stubs follow their package
    assert [name for name in names if name not in reasons and not name.startswith(stubs)] == []


def test_the_lock_has_hashes_and_no_urls():
    lock = (ROOT / "requirements.lock").read_text()

    assert "--hash=sha256:" in lock
    assert "://" not in lock


def test_links_in_the_documentation_exist():
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []
