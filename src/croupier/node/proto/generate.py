"""Write the Python modules of the .proto files, or say which of them are stale.

python -m croupier.node.proto.generate            write them
python -m croupier.node.proto.generate --check    exit 1 and name the stale ones
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent


def files(folder: Path = HERE) -> dict[str, str]:
    """Name of each module to its content."""
    from grpc_tools import protoc  # noqa: PLC0415 (only whoever generates has the compiler)

    with tempfile.TemporaryDirectory() as made:
        root = folder.parents[2]
        sources = sorted(str(path.relative_to(root)) for path in folder.glob("*.proto"))
        status = protoc.main(["protoc", f"-I{root}", f"--python_out={made}", f"--pyi_out={made}", *sources])
        if status:
            raise SystemExit(f"the compiler of {', '.join(sources)} ended with {status}")
        return {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(made).rglob("*_pb2.py*"))}


def stale(folder: Path = HERE) -> list[str]:
    """Sentences about modules that are not as they would be generated."""
    wanted = files(folder)
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*_pb2.py*")}
    missing = [f"{name} is missing" for name in wanted if name not in found]
    changed = [f"{name} is stale" for name, text in wanted.items() if found.get(name, text) != text]
    return missing + changed + [f"{name} belongs to no .proto any more" for name in found.keys() - wanted]


def write(folder: Path = HERE) -> list[str]:
    """Bring the modules up to date; the names of those that changed."""
    complaints = stale(folder)
    wanted = files(folder)
    for path in folder.glob("*_pb2.py*"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [complaint.split()[0] for complaint in complaints]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m croupier.node.proto.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is stale")
    options = parser.parse_args(arguments)
    if not options.check:
        sys.stdout.writelines(f"wrote {name}\n" for name in write())
        return 0
    if complaints := stale():
        sys.stderr.writelines(f"{complaint}\n" for complaint in complaints)
        sys.stderr.write("run: make generate\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
