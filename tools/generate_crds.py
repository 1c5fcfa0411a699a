"""Write the files that are generated from the Structs, or list those that are stale.

python -m tools.generate_crds            write them
python -m tools.generate_crds --check    exit 1 and name the stale ones
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from croupier.api import chart_values, crds, module_schema, settings_page

HEADER: Final = "# generated: change the Structs in src/croupier/api and run make generate\n"
CRD_FOLDER: Final = "config/crd/bases"
KUSTOMIZATION: Final = "config/crd/kustomization.yaml"
SETTINGS: Final = "docs/settings.md"
VALUES: Final = "charts/croupier/values.schema.json"
MODULE_FOLDER: Final = "deployments/deckhouse/openapi"
RESERVATIONS: Final = "deployments/mps-dra/reservation-crd.yaml"
REPOSITORY: Final = Path(__file__).resolve().parents[1]


def files() -> dict[str, str]:
    """The generated files: path within the repository to content."""
    definitions = crds.definitions()
    bases = {f"{CRD_FOLDER}/{name}": dump_yaml([definition]) for name, definition in definitions.items()}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(f"bases/{name}" for name in definitions),
    }
    reservations = [crd for crd in definitions.values() if crd["spec"]["group"] == "mps.nvidia.com"]
    return {
        **bases,
        KUSTOMIZATION: dump_yaml([kustomization]),
        RESERVATIONS: dump_yaml(reservations),
        SETTINGS: settings_page.page(),
        f"{MODULE_FOLDER}/config-values.yaml": dump_yaml([module_schema.config_values()]),
        f"{MODULE_FOLDER}/values.yaml": dump_yaml([module_schema.values()]),
        VALUES: json.dumps(chart_values.document(), indent=1, ensure_ascii=False) + "\n",
    }


def stale_files(root: Path) -> list[str]:
    """One message for every file that is missing, stale or superfluous."""
    generated = files()
    differences = {path: _difference(root / path, content) for path, content in generated.items()}
    return [f"{path} {difference}" for path, difference in differences.items() if difference] + [
        f"{path} belongs to a kind that no longer exists" for path in _superfluous(root, generated)
    ]


def write(root: Path) -> list[str]:
    """Write stale files, delete superfluous ones, and return the paths of both."""
    generated = files()
    changed = [path for path, content in generated.items() if _difference(root / path, content)]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(generated[path], encoding="utf-8")
    leftovers = list(_superfluous(root, generated))
    for path in leftovers:
        (root / path).unlink()
    return changed + leftovers


def main(arguments: Sequence[str] | None = None) -> int:
    return run_generator("tools.generate_crds", __doc__, stale_files, write, arguments)


def run_generator(
    module: str,
    description: str | None,
    stale: Callable[[Path], list[str]],
    write: Callable[[Path], list[str]],
    arguments: Sequence[str] | None,
) -> int:
    """The command line of a generator: write the files, or with --check list stale ones and fail."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help="the repository (default: this one)")
    options = parser.parse_args(arguments)
    if not options.check:
        sys.stdout.writelines(f"wrote {path}\n" for path in write(options.root))
        return 0
    if messages := stale(options.root):
        sys.stderr.writelines(f"{message}\n" for message in messages)
        sys.stderr.write("run: make generate\n")
        return 1
    return 0


def _difference(path: Path, content: str) -> str:
    """`is missing`, `is stale`, or an empty string if the file is up to date."""
    if not path.exists():
        return "is missing"
    return "" if path.read_text(encoding="utf-8") == content else "is stale"


def _superfluous(root: Path, generated: dict[str, str]) -> Iterable[str]:
    existing = sorted((root / CRD_FOLDER).glob("*.yaml"))
    return [path for path in (f"{CRD_FOLDER}/{file.name}" for file in existing) if path not in generated]


def dump_yaml(documents: list[dict[str, Any]]) -> str:
    plain = msgspec.json.decode(msgspec.json.encode(documents))  # shared objects would become YAML anchors
    return HEADER + yaml.safe_dump_all(plain, sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    sys.exit(main())
