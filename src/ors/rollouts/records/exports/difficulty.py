"""The difficulty of tasks, by their content: for a later training, and for another order of the tasks."""

from collections.abc import Iterator
from statistics import fmean, pvariance
from typing import Any

from ors.rollouts.episodes.task import task_hash
from ors.rollouts.records.reader import Entry, Run


def difficulty_rows(run: Run, skipped: list[str]) -> Iterator[dict[str, Any]]:
    """One row for each task with an episode that counts; reasons go to `skipped`.

    `length` is the mean number of the agent's messages, or of calls where those are not known.
    """
    tasks: dict[Any, list[Entry]] = {}
    for entry in run.entries:
        if entry.score is not None:
            tasks.setdefault(entry.task, []).append(entry)
    for task, entries in tasks.items():
        records = run.episodes(entries, on_broken=lambda *_: None)  # one that can be read is enough
        spec = next((record.task.spec for record in records if record.task.spec is not None), None)
        if spec is None:
            skipped.append(f"{task.label}: the run does not have the content of this task")
            continue
        scores = [entry.score or 0.0 for entry in entries]
        where = {"environment": task.environment, "split": task.split, "index": task.index}
        rewards = {"attempts": len(scores), "mean": fmean(scores), "variance": pvariance(scores)}
        length = fmean(entry.turns or entry.calls for entry in entries)
        yield {"task": task_hash(spec), **where, **rewards, "length": length}
