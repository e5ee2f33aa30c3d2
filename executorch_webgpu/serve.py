"""`python -m executorch_webgpu serve`: the pages that run programs in a browser.

Serves the built site of web/ to this machine alone, the gallery's models at /models/,
and one program at /program/. Answers ranges, as the player asks for weights in parts.
"""

from __future__ import annotations

import email.utils
import re
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from .errors import WebGPUError

HOST = "127.0.0.1"
PACKAGE = Path(__file__).resolve().parent
# Not by the system's tables: a registry that calls scripts text breaks pages.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
    ".jpg": "image/jpeg",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".map": "application/json; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".wav": "audio/wav",
}
_CHUNK = 1 << 20
_OUR_NAMES = ("localhost", HOST, "[::1]")


@dataclass(frozen=True)
class Places:
    """What is served: folders and files by the first part of an address."""

    site: Path
    gallery: Path | None = None
    program: Path | None = None

    def find(self, address: str) -> Path | None:
        """The file at an address's path, which must lie in one of our folders."""
        parts = [part for part in unquote(address).split("/") if part]
        if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
            return None
        if parts[:1] == ["program"]:
            wanted = self.program is not None and parts[1:] == [self.program.name]
            return self.program if wanted else None
        if parts[:1] == ["models"]:
            return _inside(self.gallery, parts[1:])
        if parts[:1] == ["lib"]:
            return _inside(self.site.parent, parts[1:])
        return _inside(self.site, parts or ["index.html"])

    @property
    def first(self) -> str:
        """The path that a visitor opens."""
        if self.program is None:
            return "/"
        return f"/program.html?model=program/{quote(self.program.name)}"


def _inside(folder: Path | None, parts: list[str]) -> Path | None:
    if folder is None:
        return None
    path = folder.joinpath(*parts).resolve()
    # A link may lead out of the folder.
    return path if path.is_relative_to(folder.resolve()) and path.is_file() else None


def find_site() -> Path:
    """The built site: of the source tree that this package is in, or of the wheel."""
    folders = (PACKAGE.parent / "web" / "dist", PACKAGE / "web")
    for folder in folders:
        if (folder / "site" / "index.html").is_file():
            return folder / "site"
    raise WebGPUError(
        "serve: the pages must be built, got none; run `make web` in the source tree,"
        " or install a wheel that was built where npm is"
    )


def find_gallery(given: Path | None) -> Path | None:
    """The folder with exported models; that of the source tree unless one is given."""
    if given is not None:
        if not given.is_dir():
            raise WebGPUError(
                f"serve: --gallery must be a folder, got {given}; export models to it"
                f" with `python examples/gallery {given}`"
            )
        return given
    own = PACKAGE.parent / "build" / "gallery"
    return own if own.is_dir() else None


def find_program(given: Path | None) -> Path | None:
    """The program to run, as an absolute path."""
    if given is not None and not given.is_file():
        raise WebGPUError(f"serve: the program must be a file, got {given}")
    return None if given is None else given.resolve()


def serve(program: Path | None, port: int, gallery: Path | None) -> None:
    """Serves until it is interrupted."""
    places = Places(find_site(), find_gallery(gallery), find_program(program))
    with start(places, port) as server:
        print(f"http://{HOST}:{server.server_port}{places.first}", flush=True)
        if program is None:
            print(_models(places.gallery), flush=True)
        print("Ctrl-C stops it.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _models(gallery: Path | None) -> str:
    found = [] if gallery is None else sorted(gallery.glob("*/model.json"))
    if not found:
        return (
            "No models yet: `python examples/gallery build/gallery` in the source tree"
            " exports them; --gallery names another folder."
        )
    return f"Models of {gallery}: {', '.join(path.parent.name for path in found)}"


class Server(ThreadingHTTPServer):
    """Answers requests, each in a thread of its own."""

    daemon_threads = True
    # Another server's port is not taken over in silence.
    allow_reuse_port = False

    def __init__(self, places: Places, port: int) -> None:
        self.places = places
        super().__init__((HOST, port), Handler)


def start(places: Places, port: int) -> Server:
    """A server that has a port, but does not answer yet."""
    try:
        return Server(places, port)
    except OverflowError:
        raise WebGPUError(f"serve: --port must be below 65536, got {port}") from None
    except OSError as error:
        raise WebGPUError(
            f"serve: --port must be free, got {port}: {error.strerror}"
        ) from error


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of files, whole or in part."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *args: object) -> None:
        """Says nothing: a page's own errors are on the page."""

    def _answer(self, with_body: bool) -> None:
        # A page elsewhere can give its own name our address; it must not read files.
        if re.sub(r":\d+$", "", self.headers.get("Host", "")) not in _OUR_NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "the host must be localhost")
            return
        path = self.server.places.find(urlsplit(self.path).path)
        if path is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with path.open("rb") as file:
            try:
                self._send(path, file, with_body)
            except (BrokenPipeError, ConnectionResetError):
                # A tab that was closed wants no more.
                self.close_connection = True

    def _send(self, path: Path, file: BinaryIO, with_body: bool) -> None:
        status = path.stat()
        size, tag = status.st_size, f'"{status.st_size:x}-{status.st_mtime_ns:x}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self._send_headers(path, tag, status.st_mtime)
            self.end_headers()
            return
        wanted = None
        if self.headers.get("If-Range", tag) == tag:
            wanted = parse_range(self.headers.get("Range"), size)
        if wanted is not None and wanted.start >= wanted.stop:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        part = range(size) if wanted is None else wanted
        self.send_response(HTTPStatus.OK if wanted is None else 206)
        self._send_headers(path, tag, status.st_mtime)
        self.send_header("Content-Length", str(len(part)))
        if wanted is not None:
            text = f"bytes {part.start}-{part.stop - 1}/{size}"
            self.send_header("Content-Range", text)
        self.end_headers()
        if with_body:
            file.seek(part.start)
            left = len(part)
            while left > 0:
                data = file.read(min(left, _CHUNK))
                if not data:  # the file was cut meanwhile
                    self.close_connection = True
                    return
                self.wfile.write(data)
                left -= len(data)

    def _send_headers(self, path: Path, tag: str, changed: float) -> None:
        kind = TYPES.get(path.suffix, "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("ETag", tag)
        self.send_header("Last-Modified", email.utils.formatdate(changed, usegmt=True))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")


def parse_range(text: str | None, size: int) -> range | None:
    """The part that a Range header asks for; an empty one lies outside of the file.

    None is the whole file: for no header, one with several parts, and one that is no
    range, which RFC 9110 has servers ignore.
    """
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", text or "")
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    stop = min(size, int(last) + 1) if last else size
    return range(min(int(first), stop), stop)
