"""Hosts and routers that run in a Ray cluster: as many as are needed, where they may be."""

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import ray

from ors._protocol import MAX_SLOT
from ors.cluster.autoscale import Bounds, ScaleDownDelay
from ors.cluster.directory import SILENCE_SECONDS, Row, Wishes
from ors.cluster.ray.actors import ActorPlan
from ors.cluster.ray.heartbeat import HEARTBEAT_SECONDS

log = logging.getLogger("ors.cluster")

ANSWER_SECONDS = 2.0
"""A host that has not answered by then is asked again later."""
LAST_SECONDS = 3.0
"""An empty host goes on for this long: a client may have an id for it, and no session yet."""
STOP_SECONDS = 60.0
WORD_SECONDS = 15.0
"""Those who wait for hosts are told so this often."""
START_SECONDS = 60.0
"""A host that was started, and has not been heard of for so long, is not counted upon."""
LOST_SECONDS = 10.0
"""Nor is one that was heard of, and has been silent for so long: its node may be frozen."""


@dataclass(slots=True)
class _Host:
    actor: Any
    expected: float
    """By when it should be heard of, or it is not counted upon."""
    node: str = ""
    until: float | None = None
    """When it goes at the latest, if it is to go."""
    empty: float | None = None
    """Since when it has no session, if it is to go."""


class Deployment:
    """What `deploy` has started. A thread places hosts until it is stopped; no request goes through it."""

    def __init__(self, plan: ActorPlan, bounds: Bounds, fronts: int) -> None:
        self._plan = plan
        self._directory = plan.directory()
        self._bounds = bounds
        self._front_count = fronts
        self._hosts: dict[int, _Host] = {}
        self._fronts: dict[str, Any] = {}  # by node
        self._ending: dict[int, tuple[Any, Any]] = {}  # by slot: the actor, and its word that it has ended
        self._wishes = Wishes()
        self._directory_life = ""
        self._calm = ScaleDownDelay()
        self._stopped = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="ors-keeper", daemon=True)

    # ── What is there ────────────────────────────────────────────────────────────────────────────

    def rows(self) -> list[Row]:
        """The hosts that are up."""
        found: list[Row] = ray.get(self._directory.rows.remote())
        return found

    def urls(self) -> list[str]:
        """Where clients may connect, any of these: the routers, or the hosts if there are none."""
        fronts: dict[str, str] = ray.get(self._directory.fronts.remote())
        return sorted(set(fronts.values())) or [row.url for row in self.rows()]

    def actor(self, slot: int) -> Any:
        """Ray's handle of a host."""
        return self._hosts[slot].actor

    @property
    def fronts(self) -> dict[str, Any]:
        """Ray's handles of the routers, by node."""
        return dict(self._fronts)

    # ── What is wished ───────────────────────────────────────────────────────────────────────────

    def scale(self, least: int, most: int | None = None) -> None:
        """So many hosts from now on. Those that go end with their last session, or at the deadline."""
        ray.get(self._directory.wish.remote(least, least if most is None else most))

    def drain(self, node: str) -> None:
        """No hosts on that node from now on: others take their place, their sessions may end."""
        ray.get(self._directory.drain.remote(node))

    def undrain(self, node: str) -> None:
        """Hosts may be on that node again."""
        ray.get(self._directory.undrain.remote(node))

    def start(self, hosts: int) -> None:
        """Starts the first hosts and the routers, and waits until they are up.

        Raises:
            ray.exceptions.RayError: one cannot be started; nothing is left of the others.
        """
        try:
            self._start(hosts)
        except BaseException:
            self.stop()
            raise
        self._keeper.start()

    def _start(self, hosts: int) -> None:
        for _ in range(hosts):
            self._add(time.monotonic())
        _wait_for([host.actor.info.remote() for host in self._hosts.values()])
        self._place_fronts()
        ray.get([front.pid.remote() for front in self._fronts.values()])
        known = ray.get(self._directory.fronts.remote())
        while len(self.rows()) < hosts or len(known) < len(self._fronts):
            time.sleep(HEARTBEAT_SECONDS / 5)
            known = ray.get(self._directory.fronts.remote())

    def stop(self) -> None:
        """Ends everything."""
        self._stopped.set()
        if self._keeper.is_alive():
            self._keeper.join()
        actors = [*self._fronts.values(), *(host.actor for host in self._hosts.values())]
        stopping = [actor.stop.remote() for actor in actors] + [word for _, word in self._ending.values()]
        ray.wait(stopping, num_returns=len(stopping), timeout=STOP_SECONDS)
        for actor in [*actors, *(actor for actor, _ in self._ending.values()), self._directory]:
            ray.kill(actor)

    # ── Placing ──────────────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        # Not without a connection: Ray would start another cluster, on this machine.
        while not self._stopped.wait(HEARTBEAT_SECONDS) and ray.is_initialized():
            try:
                rows, wishes, life = ray.get(self._directory.look.remote(), timeout=SILENCE_SECONDS)
                if life == self._directory_life:
                    self._tick(rows, wishes, time.monotonic())
                else:  # it has just begun, or was lost and has forgotten what was wished for
                    ray.get(self._directory.remember.remote(self._wishes), timeout=SILENCE_SECONDS)
                    self._directory_life = life
            except ray.exceptions.RayError as error:
                log.warning("the cluster does not answer: %s", error)
            except Exception:
                # Without this thread, no host would ever be started or ended again.
                log.exception("hosts could not be placed: it is tried again")

    def _tick(self, rows: list[Row], wishes: Wishes, now: float) -> None:
        self._wishes = wishes
        if wishes.hosts is not None:
            self._bounds = replace(self._bounds, least=wishes.hosts[0], most=wishes.hosts[1])
        for row in rows:
            if row.slot in self._hosts:
                self._hosts[row.slot].node = row.node
                self._hosts[row.slot].expected = now + LOST_SECONDS
            if row.node in wishes.drained:
                self._retire(row.slot, now)
        self._fit(rows, now)
        for slot in [slot for slot, host in self._hosts.items() if host.until is not None]:
            self._let_go(slot, now)
        self._bury()
        self._place_fronts()

    def _fit(self, rows: list[Row], now: float) -> None:
        """As many hosts as are wanted: new ones, or fewer of the emptiest."""
        staying = [slot for slot, host in self._hosts.items() if host.until is None and host.expected > now]
        wanted = self._bounds.wanted(sum(row.sessions for row in rows))
        wanted = self._calm.settled(wanted, len(staying), self._bounds, now)
        for _ in range(wanted - len(staying)):
            self._add(now)
        sessions = {row.slot: row.sessions for row in rows}
        staying.sort(key=lambda slot: (sessions.get(slot, 0), -slot))
        for slot in staying[: max(0, len(staying) - wanted)]:
            self._retire(slot, now)

    def _add(self, now: float) -> None:
        silent = {host.node for host in self._hosts.values() if host.expected <= now} - {""}
        for host in self._hosts.values():
            if host.until is not None and host.expected > now and host.node not in self._wishes.drained:
                host.until = host.empty = None  # it was about to go
                host.actor.retire.remote(False)
                return
        slot = next(
            slot for slot in range(MAX_SLOT + 1) if slot not in self._hosts and slot not in self._ending
        )
        actor = self._plan.host_actor(slot, self._wishes.drained | silent)
        self._hosts[slot] = _Host(actor, now + START_SECONDS)

    def _retire(self, slot: int, now: float) -> None:
        host = self._hosts.get(slot)
        if host is not None and host.until is None:
            log.info("host %d takes no new sessions, and ends with its last one", slot)
            host.until = now + self._bounds.drain_seconds

    def _let_go(self, slot: int, now: float) -> None:
        """Ends a host that has no session left, or whose time is over."""
        host = self._hosts[slot]
        try:
            # Said again each time: one that Ray has started again meanwhile does not know.
            sessions = ray.get(host.actor.retire.remote(), timeout=ANSWER_SECONDS)
        except ray.exceptions.RayActorError:
            sessions = 0
        except ray.exceptions.GetTimeoutError:
            return
        host.empty = None if sessions else host.empty or now
        empty = host.empty is not None and now - host.empty >= LAST_SECONDS
        if empty or (host.until is not None and now >= host.until):
            del self._hosts[slot]
            self._ending[slot] = (host.actor, host.actor.stop.remote())

    def _bury(self) -> None:
        for slot, (actor, ended) in list(self._ending.items()):
            if ray.wait([ended], timeout=0)[0]:
                ray.kill(actor)
                self._directory.forget.remote(slot)
                del self._ending[slot]

    def _place_fronts(self) -> None:
        """A router on each of so many nodes, and on another when a node is gone."""
        nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
        for node in self._fronts.keys() - set(nodes):
            ray.kill(self._fronts.pop(node))
        for node in nodes:
            if len(self._fronts) < self._front_count and node not in self._fronts:
                self._fronts[node] = self._plan.front_actor(node)


def _wait_for(starting: list[Any]) -> None:
    waiting = starting
    while waiting:
        _, waiting = ray.wait(starting, num_returns=len(starting), timeout=WORD_SECONDS)
        if waiting:
            missing = f"{len(waiting)} of {len(starting)} hosts are not up yet"
            log.warning("%s: does the cluster have the resources for them?", missing)
    ray.get(starting)
