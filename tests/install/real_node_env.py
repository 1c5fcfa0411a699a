"""A lab with a real node and an installation, created and removed by the commands of README.md."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from croupier_lab import installation, realnode, record, user_dirs
from croupier_lab.installation import HELM_TIMEOUT, NAMESPACE, RELEASE
from croupier_lab.lab import Lab
from croupier_lab.testrun import run
from tests.cli import env
from tests.cli.env import CommandResult
from tests.docs import blocks
from tests.docs.blocks import Block
from tests.docs.shell import Shell
from tests.install import rendering

README = rendering.ROOT / "README.md"
OLD, NEW = "0.1.0", "0.1.1"
TIMEOUT = 300.0
BUILD_TIMEOUT = 1200.0
"""Seconds for the commands of README.md; the first run also builds the image."""


@dataclass(frozen=True)
class RealNodeEnv:
    lab: Lab
    folder: Path
    program: Path
    reader: Shell

    def helm(self, *words: str) -> str:
        command = [
            str(self.program),
            *words,
            f"--namespace={NAMESPACE}",
            f"--kubeconfig={self.lab.kubeconfig}",
        ]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"helm {' '.join(words)}: {ended.stderr}\n{self.trouble()}"
        return ended.stdout

    def install(self) -> None:
        """Run the installation of README.md again."""
        self._types("croupier lab install")

    def install_by_hand(self, version: str, *options: str) -> None:
        """Install the chart with another version by the helm command."""
        self._types("croupier lab install --print-values > values.yaml")
        values = f"--values={self.reader.home / 'repository/values.yaml'}"
        chart = str(self._chart(version))
        self.helm(
            "upgrade", "--install", RELEASE, chart, values, "--wait", f"--timeout={HELM_TIMEOUT}", *options
        )

    def _types(self, line: str) -> str:
        return self.reader.types([Block(README, 1, "sh", line)])

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.lab.kubectl(*words, stdin=stdin).stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def asks(self, *words: str) -> CommandResult:
        return env.croupier(*words, kubeconfig=self.lab.kubeconfig)

    def trouble(self) -> str:
        """Pods and warning Events, for error messages."""
        pods = self.lab.kubectl("get", "pods", "-A", check=False).stdout
        events = self.lab.kubectl("events", "-A", "--types=Warning", check=False).stdout
        return f"{pods}\n{events[-3000:]}"

    def _chart(self, version: str) -> Path:
        folder = self.folder / version
        shutil.copytree(installation.CHART, folder)
        written = folder / "Chart.yaml"
        written.write_text(written.read_text().replace(f"ersion: {OLD}", f"ersion: {version}"))
        return folder


@contextmanager
def raised(folder: Path, *, between: Callable[[Lab], None]) -> Iterator[RealNodeEnv]:
    """Run the commands of README.md; `between` runs after the lab has started, before the installation."""
    program, home = rendering.helm(), folder / "home"
    home.mkdir()
    shell = Shell(home, patience=BUILD_TIMEOUT)
    (up,) = blocks.marked(README, "installation up")
    first, _, rest = up.text.partition("\n")
    try:
        shell.types([replace(up, text=first)])
        with _owned(home / "labs/default") as lab:
            between(lab)
            tools = (lab.cluster.program.parent, program.parent)
            reader = replace(shell, tools=tools, settings={"KUBECONFIG": str(lab.kubeconfig)})
            reader.types([replace(up, text=rest)])
            yield RealNodeEnv(lab, folder, program, reader)
    finally:
        shell.types(blocks.marked(README, "installation down"))


@contextmanager
def _owned(folder: Path) -> Iterator[Lab]:
    """Own the lab during the test: the next test run stops it if this one is killed."""
    stored = record.load(folder)
    assert stored is not None
    lab, link = Lab(stored), user_dirs.runs() / f"installation-{os.getpid()}"
    link.parent.mkdir(parents=True, exist_ok=True)
    lab.remember(owner=record.current_process())
    link.symlink_to(folder)
    try:
        yield lab
    finally:
        lab.remember(owner=None)
        link.unlink()


def add_version(at: RealNodeEnv, version: str) -> None:
    """Tag the image with another version."""
    (name,) = {
        container["image"]
        for pod in at.get("pods", "-n", NAMESPACE)["items"]
        for container in pod["spec"]["containers"][:1]
    }
    run(realnode.images(at.lab, "tag", name, f"{name.rpartition(':')[0]}:{version}"))
