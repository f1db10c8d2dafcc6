"""Reports an actor to the directory, and ends it when its node's raylet dies."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import ray

from ors.cluster.hosting.backend import SILENCE_SECONDS, HostURLs

log = logging.getLogger("ors.cluster")

HEARTBEAT_SECONDS = 0.5
DIRECTORY = "ors-directory"


def directory(namespace: str) -> Any:
    """Returns Ray's handle of the directory of a namespace.

    By its name: a handle among an actor's arguments would be kept in the memory of the driver's node, without
    which the actor could not be started again.

    Raises:
        ValueError: nothing is deployed there.
    """
    return ray.get_actor(DIRECTORY, namespace=namespace)


class Heartbeat:
    """Sends heartbeats to the directory from a thread, and passes on where all hosts are."""

    def __init__(self, send: Callable[[], Any], on_urls: Callable[[HostURLs], None]) -> None:
        self._send = send
        self._on_urls = on_urls
        self._raylet = os.getppid()
        self._stopped = threading.Event()
        # Two threads: the raylet is watched also while the directory cannot be reached.
        for work in (self._report, self._watch):
            threading.Thread(target=work, name="ors-heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _report(self) -> None:
        while not self._stopped.is_set():
            try:
                self._on_urls(ray.get(self._send(), timeout=SILENCE_SECONDS))
            except ray.exceptions.RayError as error:
                # The directory is being restarted: what is known is still true.
                log.debug("The directory does not answer: %s", error)
            self._stopped.wait(HEARTBEAT_SECONDS)

    def _watch(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            if os.getppid() != self._raylet:
                os._exit(1)  # the raylet is dead: Ray starts this actor again elsewhere
