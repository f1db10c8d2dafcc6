"""A real registry on loopback, and a front that asks for tokens, redirects and breaks off."""

import json
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.image_files import MadeImage
from tests.support.waiting import wait_until

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{level: error}}
"""


LAYER = 10_000
"""Bytes above which the front takes something for a layer."""


@contextmanager
def docker_registry(folder: Path) -> Iterator[str]:
    """The address of a registry, such as 127.0.0.1:5000."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "config.yml").write_text(CONFIG.format(folder=folder, port=address.split(":")[1]))
    command = ["docker-registry", "serve", str(folder / "config.yml")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: _answers(f"http://{address}/v2/"), "the registry answers")
            yield address
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except OSError:
        return False


def push(
    address: str, repository: str, tag: str, image: MadeImage, index: Mapping[str, Any] | None = None
) -> None:
    """Puts an image there; or an index, whose images are there already."""
    base = f"http://{address}/v2/{repository}"
    for digest, data in image.blobs.items():
        if digest != image.manifest["digest"]:
            with _sent("POST", f"{base}/blobs/uploads/", b"") as answer:
                place = answer.headers["Location"]
            _sent("PUT", f"{place}&digest={digest}", data, "application/octet-stream").close()
    manifest, kind = image.blobs[image.manifest["digest"]], image.manifest["mediaType"]
    if index is not None:
        _sent("PUT", f"{base}/manifests/{image.manifest['digest']}", manifest, kind).close()
        manifest, kind = json.dumps(index).encode(), str(index["mediaType"])
    _sent("PUT", f"{base}/manifests/{tag}", manifest, kind).close()


def _sent(method: str, url: str, data: bytes, kind: str = "") -> Any:
    headers = {"Content-Type": kind} if kind else {}
    return urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method))


@dataclass
class Front:
    """Stands before a registry. What it does with requests for layers can be changed."""

    behind: str
    address: str = ""
    most: int = 1 << 40
    """Bytes of one answer, after which it breaks off."""
    spoil: bool = False
    """Changes the first byte of layers."""
    ranges: bool = True
    instead: dict[str, str] = field(default_factory=dict)
    """Manifests that it gives in place of others."""
    login: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    """Layers wait for it."""
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, Authorization and Range of each request."""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = urlsplit(request.path)
        header = request.headers.get
        self.seen.append((path.path, header("Authorization", ""), header("Range", "")))
        if path.path == "/token":
            scope = parse_qs(path.query)["scope"][0]
            _reply(request, 200, json.dumps({"token": f"for {scope}"}).encode())
        elif path.path.startswith("/store/"):
            self._layer(request, path.path.removeprefix("/store"))
        elif not header("Authorization"):
            scheme = "Basic" if self.login else "Bearer"
            told = f'{scheme} realm="http://{self.address}/token",service="tests",scope="repository:x:pull"'
            _reply(request, 401, b"{}", {"WWW-Authenticate": told})
        elif "/blobs/" in path.path:
            host = self.address.replace("127.0.0.1", "localhost")
            _reply(request, 307, b"", {"Location": f"http://{host}/store{path.path}"})
        else:
            self._forward(request, self.instead.get(path.path, path.path))

    def _forward(self, request: BaseHTTPRequestHandler, path: str) -> None:
        asked = urllib.request.Request(
            f"http://{self.behind}{path}", headers={"Accept": request.headers["Accept"]}
        )
        try:
            with urllib.request.urlopen(asked) as answer:
                _reply(request, 200, answer.read(), {"Content-Type": answer.headers["Content-Type"]})
        except urllib.error.HTTPError as error:
            with error:
                _reply(request, error.code, b"{}")

    def _layer(self, request: BaseHTTPRequestHandler, path: str) -> None:
        with urllib.request.urlopen(f"http://{self.behind}{path}") as answer:
            data = answer.read()
        if len(data) > LAYER:
            self.gate.wait()
        if self.spoil and len(data) > LAYER:
            data = bytes([data[0] ^ 1]) + data[1:]
        asked = request.headers.get("Range", "") if self.ranges else ""
        begin = int(asked.removeprefix("bytes=").removesuffix("-") or 0)
        _reply(request, 206 if asked else 200, data[begin:], most=self.most if len(data) > LAYER else LAYER)


def _reply(
    request: BaseHTTPRequestHandler,
    status: int,
    data: bytes,
    headers: Mapping[str, str] = {},
    most: int = 1 << 40,
) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(data)), "Connection": "close"}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data[:most])


@contextmanager
def fronted(behind: str) -> Iterator[Front]:
    front = Front(behind)
    front.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            front.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        front.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield front
        finally:
            front.gate.set()
            server.shutdown()
            thread.join()
