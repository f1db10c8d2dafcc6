"""Runs in the formats of other programs, and the difficulty of their tasks."""

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Literal, assert_never, get_args

from ors._json import dumps
from ors._version import __version__
from ors.client import (
    Provider,
    ToolInvocation,
    ToolOutput,
    convert_prompt,
    convert_reply,
    convert_results,
    convert_tools,
)
from ors.providers.messages import AgentMessage, Message, SystemMessage, ToolMessage, Usage, UserMessage
from ors.rollouts.episodes.episode import EpisodeRecord, task_hash
from ors.rollouts.episodes.outcome import OUTCOMES as KINDS
from ors.rollouts.episodes.outcome import name_of
from ors.rollouts.records.files import write_whole
from ors.rollouts.records.reader import Entry, Run
from ors.types import Block, ImageBlock, TextBlock, ToolSpec, described, text_and_images

ExportFormat = Literal["openai", "atif", "difficulty"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
OUTCOMES = tuple(map(name_of, KINDS))
IMAGES = "images"
FORMAT: Provider = "openai-chat"
NOT_RUN = "Not run: the episode had ended."
VERSION = "ATIF-v1.8"
ENDINGS = {"image/jpeg": ".jpg", "image/png": ".png", "image/gif": ".gif", "image/webp": ".webp"}
"""The images that the format allows, and the endings of their files."""
SaveImage = Callable[[bytes, str], str]
"""Saves an image with this ending; returns its path relative to the trajectory."""


@dataclass(frozen=True, slots=True)
class Exported:
    """How many episodes were exported, and how many were not, because of the filter or without messages."""

    episodes: int
    """With the format "difficulty": those that count in its tasks."""
    left_out: int
    skipped: Sequence[str]
    """Why others were not: they cannot be read, or cannot be expressed in the format."""


def export_run(
    run: Run,
    format: ExportFormat,
    out: Path,
    *,
    min_reward: float | None = None,
    outcomes: Collection[str] = ("scored",),
) -> Exported:
    """Exports episodes with these outcomes and at least this reward, if one is given.

    openai: `out` is a file with one line of JSON for each episode. atif: `out` is a folder with one file for
    each episode, and its images. difficulty: `out` is a file with one line of JSON for each task, over all
    its episodes that count, whatever is chosen; `TaskSampler.from_file` reads it.

    Raises:
        OSError: `out` cannot be written.
    """
    chosen = [entry for entry in run.entries if _is_wanted(entry, min_reward, outcomes)]
    skipped: list[str] = []
    if format == "difficulty":
        rows = list(_difficulty_rows(run, skipped))
        _write_lines((dumps(row) + b"\n" for row in rows), out)
        played = sum(row["attempts"] for row in rows)
        return Exported(played, len(run.entries) - played, skipped)
    found = run.episodes(chosen, on_broken=lambda _, error: skipped.append(str(error)))
    records = (record for record in found if record.messages)
    openai = format == "openai"
    written = _write_lines(_lines(records, skipped), out) if openai else _write_atif(records, out, run)
    return Exported(written, len(run.entries) - written - len(skipped), skipped)


def _is_wanted(entry: Entry, min_reward: float | None, outcomes: Collection[str]) -> bool:
    if entry.outcome.type not in outcomes:
        return False
    return min_reward is None or (entry.reward is not None and entry.reward >= min_reward)


def _write_lines(lines: Iterable[bytes], out: Path) -> int:
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.partial")
    count = 0
    try:
        with partial.open("wb") as file:
            for line in lines:
                file.write(line)
                count += 1
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _lines(records: Iterable[EpisodeRecord], skipped: list[str]) -> Iterator[bytes]:
    for record in records:
        try:
            line = dumps(openai_example(record)) + b"\n"
        except ValueError as error:
            skipped.append(f"Episode {record.id}: {error}")
        else:
            yield line


def _write_atif(records: Iterable[EpisodeRecord], out: Path, run: Run) -> int:
    out.mkdir(parents=True, exist_ok=True)
    version = run.info.versions.get("ors", __version__)
    count = 0

    def save(content: bytes, ending: str) -> str:
        (out / IMAGES).mkdir(exist_ok=True)
        path = f"{IMAGES}/{hashlib.sha256(content).hexdigest()}{ending}"
        if not (out / path).exists():
            write_whole(out / path, content)
        return path

    for record in records:
        name = re.sub(r"[^\w-]", "_", record.id, flags=re.ASCII)
        if name != record.id:  # two ids must not share a file
            name += f"-{hashlib.sha256(record.id.encode(errors='surrogatepass')).hexdigest()[:8]}"
        write_whole(out / f"{name}.json", dumps(atif_trajectory(record, version=version, save=save)))
        count += 1
    return count


def _difficulty_rows(run: Run, skipped: list[str]) -> Iterator[dict[str, Any]]:
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


# ── Chat Completions ──


@dataclass(slots=True)
class Turn:
    """A reply with its calls and their results. Every call has an id."""

    reply: AgentMessage
    calls: dict[str, ToolInvocation]
    results: list[tuple[str | None, ToolMessage]] = field(default_factory=list)
    """Each with the id of its call; None if it belongs to no call, as that of a terminal tool."""

    @property
    def unanswered(self) -> list[str]:
        """Ids of calls without a result: they were not run, because the episode had ended."""
        answered = {id for id, _ in self.results}
        return [id for id in self.calls if id not in answered]

    def add(self, result: ToolMessage) -> None:
        """Adds a result. It belongs to the first unanswered call with its id; without one, of its tool."""
        same = (id for id in self.unanswered if self.calls[id].id == result.call)
        found = (id for id in same if result.call or self.calls[id].name == result.name)
        self.results.append((next(found, None), result))


def turns(messages: Iterable[Message]) -> Iterator[SystemMessage | UserMessage | Turn]:
    """Groups messages. Calls without an id of their own get one: some providers send none, or repeat one."""
    current: Turn | None = None
    count = 0
    for message in messages:
        if current is not None and not isinstance(message, ToolMessage):
            yield current
            current = None
        match message:
            case SystemMessage() | UserMessage():
                yield message
            case AgentMessage():
                current = Turn(message, {})
                for each in message.calls:
                    id = each.id if each.id and each.id not in current.calls else f"ors_call_{count}"
                    current.calls[id] = each
                    count += 1
            case ToolMessage():
                # A server that records its sessions may know the calls only.
                current = current or Turn(AgentMessage(), {})
                current.add(message)
            case _:
                assert_never(message)
    if current is not None:
        yield current


def openai_example(record: EpisodeRecord) -> dict[str, Any]:
    """The messages and tools of an episode. Images are data URLs; reasoning is left out."""
    messages = [message for part in turns(record.messages) for message in _openai_messages(part)]
    tools = {"tools": convert_tools(record.tools, FORMAT)} if record.tools else {}
    code = {name: told for name in ("version", "hash") if (told := getattr(record, name)) is not None}
    origin = {"metadata": {"environment": record.task.environment, **code}} if code else {}
    return {"messages": messages, **tools, **origin}


def _openai_messages(part: SystemMessage | UserMessage | Turn) -> list[dict[str, Any]]:
    match part:
        case SystemMessage():
            return [{"role": "system", "content": part.text}]
        case UserMessage():
            return convert_prompt(part.blocks, FORMAT)
        case Turn():
            return _openai_turn(part)
        case _:
            assert_never(part)


def _openai_turn(turn: Turn) -> list[dict[str, Any]]:
    calls = {id: replace(call, id=id) for id, call in turn.calls.items()}
    said = convert_reply(turn.reply.text, list(calls.values()), FORMAT) if calls or turn.reply.text else []
    for call, made in zip(calls.values(), said[0]["tool_calls"] if calls else (), strict=True):
        if call.raw is not None:
            made["function"]["arguments"] = call.raw
    # The result of a terminal tool belongs to no call, and comes after the last reply.
    answers = [(calls[id], ToolOutput(blocks=told.blocks)) for id, told in turn.results if id is not None]
    answers += [(calls[id], ToolOutput(blocks=[TextBlock(text=NOT_RUN)])) for id in turn.unanswered]
    return [*said, *convert_results(answers, FORMAT)]


# ── Trajectories ──


def atif_trajectory(record: EpisodeRecord, *, version: str, save: SaveImage) -> dict[str, Any]:
    """The trajectory of an episode. Reward, outcome and task are in `extra`.

    `version` is that of ors, which played it.
    """
    named = [each.components for each in record.messages if isinstance(each, ToolMessage)]
    components = {"components": dict(record.components), "step_components": named} if any(named) else {}
    steps = [_step(part, record, save) for part in turns(record.messages)]
    return {
        "schema_version": VERSION,
        "session_id": record.session or record.id,
        "trajectory_id": record.id,
        "agent": _agent(record, version),
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {**_counts(record.usage, "total_"), "total_steps": len(steps)},
        "extra": {
            "reward": record.reward,
            "rewards": list(record.rewards),
            **components,
            "outcome": asdict(record.outcome),
            "task": asdict(record.task),
            "environment": {"version": record.version, "hash": record.hash},
            "sample": record.sample,
            "seconds": record.seconds,
        },
    }


def _agent(record: EpisodeRecord, version: str) -> dict[str, Any]:
    model = {"model_name": record.agent} if record.agent else {}
    tools = {"tool_definitions": [_tool(each) for each in record.tools]} if record.tools else {}
    return {"name": "ors", "version": version, **model, **tools}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = tool.input_schema or {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": schema},
    }


def _step(part: SystemMessage | UserMessage | Turn, record: EpisodeRecord, save: SaveImage) -> dict[str, Any]:
    match part:
        case SystemMessage():
            return {"source": "system", "message": part.text}
        case UserMessage():
            return {"source": "user", "message": _content(part.blocks, save)}
        case Turn():
            return _turn(part, record, save)
        case _:
            assert_never(part)


def _turn(part: Turn, record: EpisodeRecord, save: SaveImage) -> dict[str, Any]:
    calls = [
        {
            "tool_call_id": id,
            "function_name": call.name,
            "arguments": call.input if call.raw is None else {"not_a_json_object": call.raw},
        }
        for id, call in part.calls.items()
    ]
    results = [
        {**({} if id is None else {"source_call_id": id}), "content": _content(result.blocks, save)}
        for id, result in part.results
    ]
    found = {
        "timestamp": _timestamp(record, part),
        "source": "agent",
        "message": part.reply.text,
        "reasoning_content": part.reply.reasoning,
        "tool_calls": calls or None,
        "observation": {"results": results} if results else None,
        "metrics": None if part.reply.usage == Usage() else _counts(part.reply.usage) or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _timestamp(record: EpisodeRecord, turn: Turn) -> str | None:
    """When the first call of a reply began; None if nobody measured it."""
    if not record.started or not turn.results:
        return None
    return datetime.fromtimestamp(record.started + turn.results[0][1].started, UTC).isoformat()


def _counts(usage: Usage, prefix: str = "") -> dict[str, Any]:
    if usage.unknown:
        return {}
    counts = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cost_usd": usage.cost,
    }
    return {prefix + name: value for name, value in counts.items() if value is not None}


def _content(blocks: Sequence[Block], save: SaveImage) -> str | list[dict[str, Any]]:
    text, images = text_and_images(blocks)
    return [_part(block, save) for block in blocks] if images else text


def _part(block: Block, save: SaveImage) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            return _image(block, save)
        case _:
            assert_never(block)


def _image(image: ImageBlock, save: SaveImage) -> dict[str, Any]:
    try:
        content = base64.b64decode(image.data, validate=True)
        path = save(content, ENDINGS[image.mimeType])
    except (KeyError, ValueError):  # another type, or not base64: the format has no place for it
        return {"type": "text", "text": described([image])}
    return {"type": "image", "source": {"media_type": image.mimeType, "path": path}}
