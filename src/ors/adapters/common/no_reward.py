"""NoReward: for trainers that need a number for every episode they train on."""

from ors.rollouts import EpisodeRecord, Failed


class NoReward(Exception):
    """The episode failed, or the environment has not scored it: leave it out of the training."""

    def __init__(self, record: EpisodeRecord) -> None:
        outcome = record.outcome
        detail = f": {outcome.who}, {outcome.error}: {outcome.message}" if isinstance(outcome, Failed) else ""
        super().__init__(f"the episode is {outcome.type} and has no reward{detail}")
        self.outcome = outcome


def reward_of(record: EpisodeRecord) -> float:
    """The reward of an episode.

    Raises:
        NoReward: it has none.
    """
    if record.reward is None:
        raise NoReward(record)
    return record.reward
