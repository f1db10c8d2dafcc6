"""The seam to engines that run servers: Ray, local processes, or another one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HostInfo:
    """A host that is up, as its last heartbeat describes it."""

    slot: int
    incarnation: int
    url: str
    sessions: int
    node: str
    """The engine's id of the machine."""
    retiring: bool = False
    """Whether it takes no new sessions and ends with its last one."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Wishes of operators: the number of hosts, and drained nodes."""

    hosts: tuple[int, int] | None = None
    """The least and the greatest number of hosts."""
    drained: frozenset[str] = frozenset()
    """Nodes that get no new sessions and no new hosts."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The hosts that run, and the wishes of operators."""

    hosts: Sequence[HostInfo]
    targets: Targets = Targets()


class BackendUnavailable(Exception):
    """The engine does not answer now; a later try may succeed."""


class BackendClosed(Exception):
    """The connection to the engine has been closed; no later try can succeed."""


class Unsupported(Exception):
    """The engine cannot do this."""


class Backend(Protocol):
    """An engine that runs hosts. `cluster.deployment` decides how many; no method waits for a host.

    All raise `BackendUnavailable`, `BackendClosed` or `Unsupported`.
    """

    def place(self, slot: int, avoid: frozenset[str] = frozenset()) -> None:
        """Starts a host in a slot, on any node but these."""

    def list(self) -> ClusterState:
        """Returns the hosts that were heard from recently, and the operators' targets."""

    def scale(self, least: int, most: int) -> None:
        """Sets the target number of hosts, which `list` returns from then on."""

    def drain(self, slot: int) -> int | None:
        """Stops new sessions on a host; returns how many it still has, None if it does not answer now.

        Called again until the host is empty: a host that was restarted meanwhile does not know it.
        """

    def undrain(self, slot: int) -> None:
        """Lets a host take new sessions again."""

    def stop(self, slot: int) -> bool:
        """Ends a host with its sessions. Called again until it returns True: the host has ended."""

    def close(self) -> None:
        """Ends whatever still runs."""
