"""The score of one session: its calls and rewards, how its episode ended, and who is told so."""

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ors._rewards import MOST_COMPONENTS
from ors.server.episodes.result import Result
from ors.server.observe.events import EpisodeEnded, SessionClosed
from ors.server.sessions.shared import Shared

if TYPE_CHECKING:
    from ors.server.sessions.session import ServerSession


@dataclass(eq=False, slots=True)
class Score:
    """Counts the calls of one session and sums up their rewards."""

    calls: int = 0
    reward: float = 0.0
    components: dict[str, float] | None = None
    """The sums of the named rewards, if there are any."""
    rewards: "array[float] | None" = None
    """The rewards of calls that gave one, be it 0; in eight bytes each."""
    failed: bool = False
    """Whether the last call failed."""
    counted: bool = False
    """Whether the end of the episode was counted."""
    outcome: str = ""
    """"scored", "unscored" or "failed", once it is counted."""

    def add(self, result: Result) -> None:
        """Counts a call that has ended."""
        self.calls += 1
        self.failed = result.kind == "failed"
        if result.reward is not None:
            self.reward += result.reward
            self.rewards = rewards = self.rewards or array("d")
            rewards.append(result.reward)
        if result.components:
            sums = self.components
            if sums is None:
                self.components = dict(result.components)
                return
            for name, value in result.components.items():
                if name in sums:
                    sums[name] += value
                elif len(sums) < MOST_COMPONENTS:
                    sums[name] = value

    def end(self, failed: bool) -> None:
        """Ends the count, and decides the outcome. Recorded sessions have the same outcomes."""
        self.counted = True
        self.outcome = "failed" if failed else "scored" if self.rewards else "unscored"
        if failed:
            self.components = None

    @property
    def so_far(self) -> float | None:
        """The sum of the rewards; None if no call gave one."""
        return round(self.reward, 9) if self.rewards else None

    @property
    def result(self) -> float | None:
        """The reward of an episode that has ended; None unless it is scored."""
        return self.reward if self.outcome == "scored" else None


def end_episode(session: "ServerSession", shared: Shared, failed: bool) -> None:
    """Decides the outcome of an episode, counts it, and tells observers. Once for a session."""
    score, episode, environment = session.score, session.episode, session.environment
    score.end(failed)
    outcome, reward, named = score.outcome, score.result, score.components or {}
    shared.episodes.add(environment, outcome, reward, named)
    task = None if episode is None else episode.task
    shared.observers.tell(
        EpisodeEnded(
            session.sid, environment, session.key, outcome, reward, score.calls, session.created, task, named
        )
    )
    if episode is not None and reward is not None and score.rewards:
        shared.episodes.warn(environment, episode.rewards.misfit(reward, score.rewards[-1], named))


def tell_closed(session: "ServerSession", shared: Shared, reason: str, teardown_seconds: float) -> None:
    """Tells observers that a session is gone, unless its episode never began."""
    score, episode = session.score, session.episode
    if episode is None:
        return
    shared.observers.tell(
        SessionClosed(
            session.sid,
            session.environment,
            session.key,
            reason,
            shared.now() - session.created,
            teardown_seconds,
            score.outcome,
            score.result,
            score.calls,
            session.place,
            episode.task,
            score.components or {},
        )
    )
