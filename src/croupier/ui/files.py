"""The files of the page, read once at start.

Files with a hash in their name never change, so browsers keep them; `index.html` names the current ones.
"""

import importlib.resources
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

INDEX: Final = "index.html"
HASHED: Final = re.compile(r"[.-][0-9A-Za-z]{8,}\.[a-z0-9]+(\.map)?$")
"""A name with a hash, such as `main.4F2K7Q3A.js` or `main-4F2K7Q3A.css`."""
FOREVER: Final = "public, max-age=31536000, immutable"
NOT_BUILT: Final = "the files of the page are missing: run `make web`, then start `croupier ui` again"
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str
    cache: str
    compressed: bytes | None = None


class PageFiles:
    def __init__(self, files: Mapping[str, PageFile]) -> None:
        self._files = files

    def respond(self, request: Request) -> Response | None:
        """The file of the path, or the page itself for a path without extension; None if there is none."""
        path = request.url.path.strip("/")
        file = self._files.get(path)
        if file is None and "." not in path.rpartition("/")[2]:
            file = self._files.get(INDEX)
            if file is None:
                return Response(NOT_BUILT + "\n", 503, media_type="text/plain")
        return None if file is None else _response(file, request)


def _response(file: PageFile, request: Request) -> Response:
    headers = {"Cache-Control": file.cache, "Content-Type": file.media_type, "Vary": "Accept-Encoding"}
    if file.compressed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.content, headers=headers)


def load(folder: Traversable | None = None) -> PageFiles:
    """Read all files of the package's folder `static`."""
    root = folder or importlib.resources.files("croupier.ui").joinpath("static")
    contents = dict(_read(root, "")) if root.is_dir() else {}
    return PageFiles(
        {
            name: PageFile(
                content,
                _media_type(name),
                FOREVER if HASHED.search(name) else "no-cache",
                contents.get(f"{name}.gz"),
            )
            for name, content in contents.items()
            if not name.endswith(".gz")
        }
    )


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _read(entry, f"{name}/")
        else:
            found.append((name, entry.read_bytes()))
    return found


def _media_type(name: str) -> str:
    suffix = f".{name.rpartition('.')[2]}"
    return _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
