"""The identity of an episode as a text."""

import json

from ors._json import dumps, loads
from ors.rollouts.agent import TaskRef


def episode_text(task: TaskRef, sample: int) -> str:
    """A text that is the same for the same task and sample, in whatever order the spec has its keys."""
    spec = loads(dumps(task.spec))
    return json.dumps([task.environment, task.split, task.index, spec, sample], sort_keys=True)
