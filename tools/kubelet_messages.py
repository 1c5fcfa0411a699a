"""Generate the Python modules of the .proto files, or list those that are stale.

python -m tools.kubelet_messages            write them
python -m tools.kubelet_messages --check    exit 1 and name the stale ones
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "src" / "croupier" / "node" / "proto"


def generated_modules(folder: Path = FOLDER) -> dict[str, str]:
    """The content of each module by file name."""
    from grpc_tools import protoc  # noqa: PLC0415 (the compiler is a development dependency)

    with tempfile.TemporaryDirectory() as output:
        root = folder.parents[2]
        sources = sorted(str(path.relative_to(root)) for path in folder.glob("*.proto"))
        options = [f"-I{root}", f"--python_out={output}", f"--pyi_out={output}"]
        status = protoc.main(["protoc", *options, *sources])
        if status:
            raise SystemExit(f"protoc failed for {', '.join(sources)} with exit code {status}")
        paths = sorted(Path(output).rglob("*_pb2.py*"))
        return {path.name: path.read_text(encoding="utf-8") for path in paths}


def stale_modules(folder: Path = FOLDER) -> list[str]:
    """One message for every module that is missing, stale or superfluous."""
    generated = generated_modules(folder)
    existing = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*_pb2.py*")}
    missing = [f"{name} is missing" for name in generated if name not in existing]
    changed = [f"{name} is stale" for name, text in generated.items() if existing.get(name, text) != text]
    orphans = [f"{name} has no .proto file" for name in sorted(existing.keys() - generated.keys())]
    return missing + changed + orphans


def write(folder: Path = FOLDER) -> list[str]:
    """Write stale modules, delete superfluous ones, and return the names of both."""
    messages = stale_modules(folder)
    generated = generated_modules(folder)
    for path in folder.glob("*_pb2.py*"):
        if path.name not in generated:
            path.unlink()
    for name, text in generated.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [message.split()[0] for message in messages]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kubelet_messages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is stale")
    options = parser.parse_args(arguments)
    if not options.check:
        sys.stdout.writelines(f"wrote {name}\n" for name in write())
        return 0
    if messages := stale_modules():
        sys.stderr.writelines(f"{message}\n" for message in messages)
        sys.stderr.write("run: make generate\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
