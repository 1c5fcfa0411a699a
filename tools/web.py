"""Builds the page of `croupier ui`: src/croupier/ui/web (TypeScript) becomes src/croupier/ui/static.

The result is checked in so that wheels, images and installations from git need no Node.
`static/sources.sha256` has the digest of everything that the result depends on, so that a stale result is
detected without Node.

python -m tools.web            build; needs npm, keeps packages in ${CROUPIER_CACHE:-~/.cache/croupier}/web
python -m tools.web --check    exit 1 if the result is not that of the sources; with npm it is built again
"""

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
WEB: Final = ROOT / "src/croupier/ui/web"
STATIC: Final = ROOT / "src/croupier/ui/static"

DIGEST: Final = "sources.sha256"
ASSETS: Final = "assets"
COPIED: Final = ("favicon.svg",)
SHIPPED: Final = ("preact", "uplot")
COMPRESSED: Final = (".js", ".css", ".html", ".svg")
ESBUILD: Final = (
    "--bundle",
    "--minify",
    "--splitting",
    "--format=esm",
    "--target=es2022",
    "--jsx=automatic",
    "--jsx-import-source=preact",
    "--legal-comments=none",
    "--charset=utf8",
    "--entry-names=[name]-[hash]",
    "--chunk-names=[name]-[hash]",
    "--log-level=warning",
)


def sources() -> list[Path]:
    """Every file that the result depends on, tests excluded."""
    files = (path for path in WEB.rglob("*") if path.is_file() and "node_modules" not in path.parts)
    return sorted(path for path in files if path.relative_to(WEB).parts[0] != "test")


def digest(paths: Iterable[Path]) -> str:
    """One digest of names and contents, and of how they are built."""
    total = hashlib.sha256(" ".join(ESBUILD).encode())
    for path in paths:
        total.update(f"\0{path.relative_to(WEB).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def packages() -> Path:
    """The folder node_modules for the lock file, installed at its first use."""
    cache = Path(os.environ.get("CROUPIER_CACHE") or Path.home() / ".cache/croupier") / "web"
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = cache / lock
    if not (folder / "node_modules").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(WEB / name, temporary)
            npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(npm, cwd=temporary, check=True)
            folder.mkdir(exist_ok=True)
            (Path(temporary) / "node_modules").rename(folder / "node_modules")
    return folder / "node_modules"


def build(target: Path) -> None:
    """Type-checks the sources and writes the result into the empty folder `target`."""
    modules = packages()
    before = digest(sources())
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) / "web"
        shutil.copytree(WEB, work, ignore=shutil.ignore_patterns("node_modules", "test"))
        (work / "node_modules").symlink_to(modules)
        subprocess.run([modules / ".bin/tsc", "--project", "."], cwd=work, check=True)
        _bundle(work, target)
    (target / "LICENSES.txt").write_text(_licences(modules))
    for name in COPIED:
        shutil.copy(WEB / name, target / name)
    for path in sorted(target.rglob("*")):
        if path.suffix in COMPRESSED:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    (target / DIGEST).write_text(f"{before}\n")


def _bundle(work: Path, target: Path) -> None:
    meta = work / "meta.json"
    subprocess.run(
        [
            work / "node_modules/.bin/esbuild",
            "src/main.tsx",
            "src/style.css",
            *ESBUILD,
            f"--outdir={target / ASSETS}",
            f"--metafile={meta}",
        ],
        cwd=work,
        check=True,
    )
    outputs = json.loads(meta.read_text())["outputs"]
    built = {
        value["entryPoint"]: Path(name).name for name, value in outputs.items() if value.get("entryPoint")
    }
    page = (work / "index.html").read_text()
    page = page.replace("%SCRIPT%", f"/{ASSETS}/{built['src/main.tsx']}")
    page = page.replace("%STYLE%", f"/{ASSETS}/{built['src/style.css']}")
    page = page.replace("%PRELOAD%", "\n    ".join(_preload(outputs)))
    (target / "index.html").write_text(page)


def _preload(outputs: dict[str, Any]) -> list[str]:
    """Links for the files that the script imports, so that the browser fetches all of them at once."""
    main = next(value for value in outputs.values() if value.get("entryPoint") == "src/main.tsx")
    imported = [Path(each["path"]).name for each in main["imports"] if each["kind"] == "import-statement"]
    return [f'<link rel="modulepreload" href="/{ASSETS}/{name}">' for name in imported]


def _licences(modules: Path) -> str:
    parts = []
    for name in SHIPPED:
        version = json.loads((modules / name / "package.json").read_text())["version"]
        parts.append(f"{name} {version}\n\n{(modules / name / 'LICENSE').read_text().strip()}\n")
    return f"\n{'-' * 80}\n\n".join(parts)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _plain(name: str, data: bytes | None) -> bytes | None:
    """Compressed files are compared by content: versions of zlib compress differently."""
    return gzip.decompress(data) if data is not None and name.endswith(".gz") else data


def write() -> list[str]:
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "static"
        target.mkdir()
        build(target)
        new = contents(target)
    for name in contents(STATIC) if STATIC.is_dir() else {}:
        if name not in new:
            (STATIC / name).unlink()
    for name, data in new.items():
        path = STATIC / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return []


def problems() -> list[str]:
    """What differs between the result that is checked in and the sources."""
    recorded = STATIC / DIGEST
    if not recorded.is_file() or recorded.read_text().strip() != digest(sources()):
        return [f"{recorded.relative_to(ROOT)} is not the digest of the sources"]
    if shutil.which("npm") is None:
        return []
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "static"
        target.mkdir()
        build(target)
        new, old = contents(target), contents(STATIC)
    names = sorted(new.keys() | old.keys())
    return [name for name in names if _plain(name, new.get(name)) != _plain(name, old.get(name))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 for a stale result")
    is_check = parser.parse_args().check
    try:
        stale = problems() if is_check else write()
    except subprocess.CalledProcessError as failed:  # it has printed why
        return failed.returncode
    if stale:
        sys.stderr.write("The built page is stale; run `make web`:\n")
        sys.stderr.writelines(f"  {name}\n" for name in stale)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
