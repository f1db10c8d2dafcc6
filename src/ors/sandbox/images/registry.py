"""Images of registries, pulled by their HTTP API. Only public ones: nobody logs in."""

import fcntl
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from ors.sandbox.images.sources import HUB, Image, Reference, digits, image_of, small
from ors.sandbox.images.unpack import PIECE, SPARE_BYTES, ImageRefused

DOCKER = "application/vnd.docker.distribution.manifest"
OCI = "application/vnd.oci.image"
ACCEPT = f"{OCI}.index.v1+json, {OCI}.manifest.v1+json, {DOCKER}.list.v2+json, {DOCKER}.v2+json"
SILENCE_SECONDS = 30.0
TRIES = 5
"""How often in a row a download may break without a byte."""
LOOPBACK = re.compile(r"(localhost|127\.[\d.]+)(:\d+)?")

Tell = Callable[[str, int, int], None]
"""Hears of a download: the digest, and how many bytes of all are here. What it raises ends the download."""


@contextmanager
def pulled(reference: Reference, blobs: Path, tell: Tell) -> Iterator[Image]:
    """An image of a registry. Its layers stay in the folder until it is used: a broken pull goes on there."""
    registry = _Registry(reference, blobs, tell)
    yield image_of(registry.blob, registry.top(reference.tag))
    for path in registry.used:
        path.unlink(missing_ok=True)


class _Registry:
    def __init__(self, reference: Reference, blobs: Path, tell: Tell) -> None:
        self._host, self._blobs, self._tell, self._token = reference.host, blobs, tell, ""
        near = LOOPBACK.fullmatch(reference.host) is not None
        host = f"registry-1.{HUB}" if reference.host == HUB else reference.host
        self._url = f"{'http' if near else 'https'}://{host}/v2/{reference.repository}"
        self._scope = f"repository:{reference.repository}:pull"
        self._open = build_opener(*([ProxyHandler({})] if near else [])).open
        self.used: list[Path] = []

    def blob(self, descriptor: Mapping[str, Any]) -> IO[bytes]:
        """Opens a part of the image, once all of it is here."""
        path, size = self._blobs / digits(descriptor), int(descriptor["size"])
        if size > shutil.disk_usage(self._blobs).free - SPARE_BYTES:
            raise ImageRefused(f"a part of {size:,} bytes is too large for the disk")
        kind = "manifests" if re.search("manifest|index", str(descriptor.get("mediaType"))) else "blobs"
        file = path.open("a+b")  # and read from there: another process may remove the path
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._fill(file, f"{kind}/{descriptor['digest']}", size)
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != path.name:
                path.unlink(missing_ok=True)
                raise ImageRefused(f"a part of it does not match its digest {descriptor['digest']}")
        except BaseException:
            file.close()
            raise
        self.used.append(path)
        file.seek(0)
        return file

    def _fill(self, file: IO[bytes], name: str, size: int) -> None:
        failures, done = 0, file.seek(0, 2)
        while done < size:
            trouble = self._more(file, name, done, size)
            before, done = done, file.seek(0, 2)
            failures = failures + 1 if done <= before else 0
            if failures == TRIES:
                raise ImageRefused(f"{self._host} breaks off: {trouble or 'its answer is too short'}")
            time.sleep(failures and 0.1 * 2**failures)

    def _more(self, file: IO[bytes], name: str, done: int, size: int) -> Exception | None:
        """Appends what is missing; returns what has broken it off."""
        try:
            with self._get(name, {"Range": f"bytes={done}-"} if done else {}) as answer:
                if answer.status != 206:  # it starts anew
                    file.truncate(done := 0)
                while piece := answer.read(PIECE):
                    done += len(piece)
                    if done > size:
                        raise ImageRefused(f"a part is larger than the {size:,} bytes of its descriptor")
                    file.write(piece)
                    self._tell(name.partition("/")[2], done, size)
        except (OSError, HTTPException) as error:
            return error
        finally:
            file.flush()
        return None

    def top(self, tag: str) -> Mapping[str, Any]:
        try:
            data = small(self._get(f"manifests/{tag}"))
        except (OSError, HTTPException) as error:
            raise ImageRefused(f"cannot reach {self._host}: {getattr(error, 'reason', error)}") from None
        if ":" in tag and tag != f"sha256:{hashlib.sha256(data).hexdigest()}":
            raise ImageRefused(f"a part of it does not match its digest {tag}")
        return dict(json.loads(data))

    def _get(self, path: str, headers: Mapping[str, str] = {}, *, again: bool = True) -> HTTPResponse:
        request = Request(f"{self._url}/{path}", headers={"Accept": ACCEPT, **headers})
        if self._token:  # not for the host that a registry redirects to
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            answer: HTTPResponse = self._open(request, timeout=SILENCE_SECONDS)
            return answer
        except HTTPError as error:
            with error:
                if error.code == 401 and again:
                    self._token = self._asked(error.headers.get("WWW-Authenticate", ""))
                    return self._get(path, headers, again=False)
                if error.code >= 500 or error.code == 429:
                    raise OSError(f"it answers {error.code} {error.reason}") from None
                why = "has no such image" if error.code == 404 else f"answers {error.code} {error.reason}"
                raise ImageRefused(f"{self._host} {why}; only public images can be pulled") from None

    def _asked(self, challenge: str) -> str:
        """Asks for a token, as the registry says: https://distribution.github.io/distribution/spec/auth/token."""
        told = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = urlsplit(told.get("realm", ""))
        near = realm.scheme == "http" and LOOPBACK.fullmatch(realm.netloc)
        if not challenge.lower().startswith("bearer") or not (near or realm.scheme == "https"):
            raise ImageRefused(f"{self._host} wants a login; only public images can be pulled")
        asked = {"service": told.get("service", ""), "scope": told.get("scope", self._scope)}
        found = json.loads(small(self._open(f"{told['realm']}?{urlencode(asked)}", timeout=SILENCE_SECONDS)))
        return str(found.get("token") or found["access_token"])
