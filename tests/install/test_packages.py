"""Two distributions: what runs in a cluster, and the lab, which the image does not contain."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
LAB = ROOT / "packaging/croupier-lab"

WITHOUT_LAB = """\
import sys

class HideLab:
    finders = list(sys.meta_path)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "croupier_lab":
            return next(filter(None, (each.find_spec(name, path, target) for each in cls.finders)), None)

sys.meta_path[:] = [HideLab]
from croupier.cli import main
main()
"""


def packages(project: Path, folder: Path) -> set[str]:
    """The top-level names in the wheel of `project`, without its metadata."""
    (wheel,) = WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    return {name for name in names if not name.endswith(".dist-info")}


def without_lab(*args: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-c", WITHOUT_LAB, *args)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def project(folder: Path) -> dict[str, str]:
    table: dict[str, str] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def test_each_wheel_contains_one_package(tmp_path):
    assert packages(ROOT, tmp_path) == {"croupier"}
    assert packages(LAB, tmp_path) == {"croupier_lab"}


def test_the_image_installs_only_the_product():
    dockerfile = (ROOT / "image/Dockerfile").read_text()

    assert "pip install --no-cache-dir --no-deps --target /opt/croupier /build/source\n" in dockerfile
    assert "packaging" not in dockerfile
    assert "psutil" not in (ROOT / "image/requirements.lock").read_text()


def test_the_versions_agree():
    assert project(LAB)["version"] == project(ROOT)["version"]
    assert project(LAB)["requires-python"] == project(ROOT)["requires-python"]


@pytest.mark.parametrize("typed", [["lab"], ["lab", "up", "--nodes", "4"], ["demo", "--help"]], ids=" ".join)
def test_a_missing_lab_is_one_sentence(typed):
    ended = without_lab(*typed)

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == (
        f"croupier: {typed[0]} needs the package croupier-lab: install it with `pip install croupier-lab`.\n"
    )


def test_the_product_works_without_the_lab():
    ended = without_lab("--help")

    assert ended.returncode == 0
    assert "demo" not in ended.stdout
    assert "ledger" in ended.stdout
