"""`serve`: which files it gives to whom, whole and in part."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from executorch_webgpu import cli
from executorch_webgpu import serve as pages
from executorch_webgpu.errors import WebGPUError

DATA = bytes(range(256)) * 20


@pytest.fixture
def places(tmp_path: Path) -> pages.Places:
    site, gallery = tmp_path / "dist" / "site", tmp_path / "gallery"
    for folder in (site / "js", gallery / "classify"):
        folder.mkdir(parents=True)
    (site / "index.html").write_text("the gallery")
    (site / "js" / "index.js").write_text("run()")
    (site.parent / "executorch-webgpu.js").write_text("export {}")
    (gallery / "classify" / "model.pte").write_bytes(DATA)
    (gallery / "classify" / ".stamp").write_text("hidden")
    (tmp_path / "secret.txt").write_text("secret")
    (gallery / "link.txt").symlink_to(tmp_path / "secret.txt")
    program = tmp_path / "my model.pte"
    program.write_bytes(b"program")
    return pages.Places(site, gallery, program)


@pytest.fixture
def server(places: pages.Places) -> Iterator[pages.Server]:
    with pages.start(places, 0) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(
    server: pages.Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    link = http.client.HTTPConnection(pages.HOST, server.server_port, timeout=10)
    try:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        link.request(method, path, headers=named)
        answer = link.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        link.close()


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", b"the gallery"),
        ("/index.html?x=1", "text/html; charset=utf-8", b"the gallery"),
        ("/js/index.js", "text/javascript; charset=utf-8", b"run()"),
        ("/lib/executorch-webgpu.js", "text/javascript; charset=utf-8", b"export {}"),
        ("/models/classify/model.pte", "application/octet-stream", DATA),
        ("/program/my%20model.pte", "application/octet-stream", b"program"),
    ],
)
def test_files(server: pages.Server, path: str, kind: str, body: bytes) -> None:
    status, headers, got = ask(server, path)
    assert (status, headers["Content-Type"], got) == (200, kind, body)
    assert headers["Accept-Ranges"] == "bytes"
    status, headers, got = ask(server, path, "HEAD")
    assert (status, headers["Content-Length"], got) == (200, str(len(body)), b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/models/../../secret.txt",
        "/models/..%5c..%5csecret.txt",
        "/models/link.txt",
        "/models/classify/.stamp",
        "/models/classify",
        "/models//etc/passwd",
        "//etc/passwd",
        "/lib/../secret.txt",
        "/program/other.pte",
        "/program",
        "/a%00b",
    ],
)
def test_nothing_else(server: pages.Server, path: str) -> None:
    status, _, body = ask(server, path)
    assert status == 404
    assert b"secret" not in body


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=100-", (100, 5120)),
        ("bytes=-5", (5115, 5120)),
        ("bytes=-9999", (0, 5120)),
        ("bytes=5119-99999", (5119, 5120)),
    ],
)
def test_part(server: pages.Server, text: str, part: tuple[int, int]) -> None:
    status, headers, body = ask(server, "/models/classify/model.pte", Range=text)
    assert status == 206
    assert body == DATA[slice(*part)]
    assert headers["Content-Range"] == f"bytes {part[0]}-{part[1] - 1}/5120"


@pytest.mark.parametrize("text", ["bytes=9-3", "bytes=0-1,4-5", "lines=0-1", "bytes=-"])
def test_range_that_is_none(server: pages.Server, text: str) -> None:
    status, _, body = ask(server, "/models/classify/model.pte", Range=text)
    assert (status, body) == (200, DATA)


@pytest.mark.parametrize("text", ["bytes=5120-", "bytes=99999-999999", "bytes=-0"])
def test_range_outside(server: pages.Server, text: str) -> None:
    status, headers, body = ask(server, "/models/classify/model.pte", Range=text)
    assert (status, body) == (416, b"")
    assert headers["Content-Range"] == "bytes */5120"


def test_version(server: pages.Server, places: pages.Places) -> None:
    path = "/models/classify/model.pte"
    _, headers, _ = ask(server, path)
    tag = headers["ETag"]
    assert ask(server, path, If_None_Match=tag)[0] == 304
    assert ask(server, path, Range="bytes=0-1", If_Range=tag)[0] == 206
    assert places.gallery is not None
    file = places.gallery / "classify" / "model.pte"
    file.write_bytes(DATA + b"more")
    os.utime(file, (1, 1))
    assert ask(server, path, If_None_Match=tag)[0] == 200
    # A part of another version would not fit what the page has.
    status, _, body = ask(server, path, Range="bytes=0-1", If_Range=tag)
    assert (status, body) == (200, DATA + b"more")


def test_another_name_for_this_machine(server: pages.Server) -> None:
    assert ask(server, "/", Host="example.org")[0] == 403
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200


def test_one_connection_for_many(server: pages.Server) -> None:
    link = http.client.HTTPConnection(pages.HOST, server.server_port, timeout=10)
    for path, status in (("/", 200), ("/none", 404), ("/", 200)):
        link.request("GET", path)
        answer = link.getresponse()
        answer.read()
        assert answer.status == status
    link.close()


def test_what_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    places: pages.Places,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pages, "PACKAGE", tmp_path / "no" / "package")
    with pytest.raises(WebGPUError, match=r"must be built.*make web"):
        pages.find_site()
    assert cli.main(["serve"]) == 1
    assert "must be built" in capsys.readouterr().err
    assert pages.find_gallery(None) is None
    with pytest.raises(WebGPUError, match="--gallery must be a folder, got"):
        pages.find_gallery(tmp_path / "none")
    with pytest.raises(WebGPUError, match=r"must be a file, got .*none\.pte"):
        pages.find_program(tmp_path / "none.pte")
    assert places.first == "/program.html?model=program/my%20model.pte"
    with pytest.raises(WebGPUError, match="--port must be below 65536, got 70000"):
        pages.start(places, 70000)


def test_port_in_use(server: pages.Server, places: pages.Places) -> None:
    port = server.server_port
    with pytest.raises(WebGPUError, match=f"--port must be free, got {port}"):
        pages.start(places, port)


def test_command(places: pages.Places, tmp_path: Path) -> None:
    """From the shell, on a wheel's layout: prints where, and answers there."""
    code = (
        "import sys, pathlib; from executorch_webgpu import cli, serve;"
        "serve.PACKAGE = pathlib.Path(sys.argv[1]); sys.exit(cli.main(sys.argv[2:]))"
    )
    package = tmp_path / "package"
    (package / "web").parent.mkdir()
    places.site.parent.rename(package / "web")
    command = [sys.executable, "-c", code, str(package), "serve", "--port", "0"]
    gallery = tmp_path / "gallery"
    (gallery / "classify" / "model.json").write_text("{}")
    with subprocess.Popen(
        [*command, "--gallery", str(gallery)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert child.stdout.readline().strip() == f"Models of {gallery}: classify"
        host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
        link = http.client.HTTPConnection(host, int(port), timeout=10)
        link.request("GET", "/")
        assert link.getresponse().read() == b"the gallery"
        child.terminate()
