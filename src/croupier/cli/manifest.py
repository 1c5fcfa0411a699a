"""Read manifests from a file or stdin; errors are usage errors that name the option and the file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.api.core_v1 import Pod
    from croupier.core.model.refusal import Refusal


def read(path: Path) -> dict[str, Any]:
    """The Pod as plain data; other kinds in the file are ignored. Exits with code 2 on errors."""
    from croupier.api import pod_manifest
    from croupier.core.model.refusal import Refusal

    data = pod_manifest.workload(_text(path, "-f"))
    if isinstance(data, Refusal):
        refuse(path, data)
    return data


def pod(path: Path, namespace: str | None) -> "Pod":
    """The Pod of the file, as if it were created now. Exits with code 2 on errors."""
    from croupier.api import pod_manifest
    from croupier.core.model.refusal import Refusal

    found = pod_manifest.pod(_text(path, "-f"), namespace)
    if isinstance(found, Refusal):
        refuse(path, found)
    return found


def documents(path: Path, option: str = "-f") -> list[Any]:
    """All documents of a YAML or JSON file; `-` is stdin. Exits with code 2 on errors."""
    from croupier.api import pod_manifest
    from croupier.core.model.refusal import Refusal

    listed = pod_manifest.documents(_text(path, option))
    if isinstance(listed, Refusal):
        refuse(path, listed, option)
    return listed


def refuse(path: Path, why: "Refusal", option: str = "-f") -> NoReturn:
    terminal.usage_error(f"{option} {path}: {why}.")


def _text(path: Path, option: str) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except OSError as error:
        terminal.usage_error(f"{option} {path}: {error.strerror}.")
    except UnicodeDecodeError:
        terminal.usage_error(f"{option} {path}: not a text file.")
