"""Feeds of the inspector, followed by hand."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.raw_http import Raw

Told = tuple[str, Any]


class Following:
    """The events of a feed, one after the other."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.response = response

    def __iter__(self) -> Iterator[Told]:
        name = ""
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])

    def next(self, wanted: str) -> Any:
        return next(value for name, value in self if name == wanted)


@contextmanager
def following(raw: Raw, path: str, **headers: str) -> Iterator[Following]:
    connection = raw.connection()
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    assert response.getheader("content-type", "").startswith("text/event-stream")
    try:
        yield Following(response)
    finally:
        response.close()
        connection.close()
