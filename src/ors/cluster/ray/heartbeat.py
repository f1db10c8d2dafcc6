"""What keeps an actor known to the directory, and ends it with its node."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import ray

from ors.cluster.directory import SILENCE_SECONDS, Places

log = logging.getLogger("ors.cluster")

HEARTBEAT_SECONDS = 0.5
DIRECTORY = "ors-directory"


def directory(namespace: str) -> Any:
    """The directory of what is deployed there.

    By its name: a handle among an actor's arguments would be kept in the memory of the driver's node, without
    which the actor could not be started again.

    Raises:
        ValueError: nothing is deployed.
    """
    return ray.get_actor(DIRECTORY, namespace=namespace)


class Heartbeat:
    """A thread that beats: it tells the directory of us, and us where all hosts are."""

    def __init__(self, beat: Callable[[], Any], meet: Callable[[Places], None]) -> None:
        self._beat = beat
        self._meet = meet
        self._raylet = os.getppid()
        self._stopped = threading.Event()
        # Two threads: while the directory cannot be reached, the raylet is watched all the same.
        for work in (self._tell, self._watch):
            threading.Thread(target=work, name="ors-heart", daemon=True).start()

    def stop(self) -> None:
        """Says nothing more."""
        self._stopped.set()

    def _tell(self) -> None:
        while not self._stopped.is_set():
            try:
                self._meet(ray.get(self._beat(), timeout=SILENCE_SECONDS))
            except ray.exceptions.RayError as error:
                # The directory is being restarted: what is known still holds.
                log.debug("the directory does not answer: %s", error)
            self._stopped.wait(HEARTBEAT_SECONDS)

    def _watch(self) -> None:
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            if os.getppid() != self._raylet:
                os._exit(1)  # the raylet is dead: Ray has a replacement for us somewhere, or will have
