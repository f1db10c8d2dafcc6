"""Judge: a model that grades answers by a rubric."""

import asyncio
import hashlib
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakValueDictionary

from ors._masking import hidden, masked
from ors.errors import JudgeFailed, ToolError
from ors.judges.rubric import Criterion, prompt, read_reply
from ors.models import Model
from ors.providers import MODEL_NAMES, api_of
from ors.providers.base import ModelOptions
from ors.providers.errors import ModelError
from ors.providers.messages import Message, SystemMessage, Usage, UserMessage, text_blocks

log = logging.getLogger("ors.judges")
LONGEST_ANSWER = 100_000
"""In characters. A longer one is refused, before it costs anything."""
_LONGEST_RECORDED = 10_000
_PLACE = frozenset(("base_url", "api_key"))
_NO_SECRETS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge decided."""

    rewards: dict[str, float]
    """The reward of each criterion: pass them on as `ToolOutput(rewards=...)`."""
    scores: dict[str, float]
    """The score of each criterion, from 0 to its scale, after the vote."""
    metadata: dict[str, Any]
    """What was asked and answered: pass it on as `ToolOutput(metadata=...)`. Agents do not see it."""


@dataclass(frozen=True, slots=True)
class _Vote:
    model: str
    text: str
    scores: dict[str, float]
    usage: Usage


class Judge:
    """A model that grades answers by a rubric. Make one for all episodes of a process.

    `model` is a name such as "openai:gpt-5-mini", or several. Each is asked `samples` times, and `vote` says
    what their scores become: their "mean", or the score of the "majority" (of several, the lowest).
    A reply that cannot be read is asked for again, up to `attempts` times in all; one vote may take `seconds`
    from its first request. `concurrency` votes run at the same time. `max_requests` and `max_total_tokens`
    limit what this object spends in its life. `cache` verdicts are kept, and given again for equal texts.
    The other options are those of `ModelAgent`: `base_url`, `api_key`, `temperature` and so on.

    Raises:
        ValueError: an argument is not valid.
    """

    def __init__(
        self,
        model: str | Sequence[str],
        rubric: Sequence[Criterion],
        *,
        samples: int = 1,
        vote: Literal["mean", "majority"] = "mean",
        attempts: int = 3,
        seconds: float = 120.0,
        concurrency: int = 16,
        max_requests: int | None = None,
        max_total_tokens: int | None = None,
        cache: int = 4096,
        **options: Any,
    ) -> None:
        self.models = (model,) if isinstance(model, str) else tuple(model)
        self.rubric = tuple(rubric)
        _check(self.models, self.rubric, vote)
        if min(samples, attempts, concurrency) < 1 or not seconds > 0:
            raise ValueError("samples, attempts and concurrency must be at least 1, seconds above 0")
        self.requests = 0
        """Requests sent so far, repeated ones included."""
        self.tokens = 0
        """Tokens used so far. Four characters count as one where the provider does not report them."""
        self._samples, self._vote, self._attempts, self._seconds = samples, vote, attempts, seconds
        self._concurrency, self._most_kept = concurrency, cache
        self._most_requests, self._most_tokens = max_requests, max_total_tokens
        # A request that hangs must leave time for another.
        self._options = {"request_seconds": seconds / 2, **options}
        given = ModelOptions(**{name: value for name, value in options.items() if name not in _PLACE})
        self._identity = repr([self.models, samples, self.rubric, given])
        self._kept: OrderedDict[bytes, list[_Vote]] = OrderedDict()
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = WeakKeyDictionary()

    def __deepcopy__(self, _: Any) -> "Judge":
        return self  # forks of an episode share its limits

    async def grade(
        self,
        question: str,
        answer: str,
        *,
        reference: str | None = None,
        secrets: Mapping[str, str] = _NO_SECRETS,
    ) -> Verdict:
        """Grades an answer. The API key is taken from `secrets`, such as `self.secrets` of an environment,
        under the usual name (`openai_api_key`), then from `api_key`, then from the server's variables.

        Raises:
            JudgeFailed: there is no verdict. Do not catch it: the tool call then fails, and nobody learns
                from a score that is none.
            ToolError: the answer is too long. The agent is told so, and can send a shorter one.
        """
        if len(answer) > LONGEST_ANSWER:
            raise ToolError(f"The answer has {len(answer)} characters; the limit is {LONGEST_ANSWER}.")
        texts = {"Question": question, "Reference answer": reference, "Answer to grade": answer}
        given = {title: text for title, text in texts.items() if text is not None}
        asked = prompt(self.rubric, given)
        key = hashlib.sha256(repr([self._identity, given]).encode()).digest()
        desk = self._desks.setdefault(asyncio.get_running_loop(), _Desk(self._concurrency))
        turn = desk.turns.setdefault((key, *secrets.values()), _Turn())
        earlier = turn.failure
        async with turn:
            kept = self._kept.pop(key, None)
            if turn.failure is not earlier and kept is None:
                raise JudgeFailed(turn.failure or "")
            try:
                votes = kept or await self._votes(desk, asked, secrets)
            except JudgeFailed as error:
                turn.failure = str(error)
                raise
            self._kept[key] = votes  # as the latest
            if len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        return self._verdict(asked, votes, secrets, cached=kept is not None)

    async def _votes(self, desk: "_Desk", asked: tuple[str, str], secrets: Mapping[str, str]) -> list[_Vote]:
        names = [name for name in self.models for _ in range(self._samples)]
        try:
            async with asyncio.TaskGroup() as group:
                votes = [group.create_task(self._one(desk, name, asked, secrets)) for name in names]
        except ExceptionGroup as failed:  # one vote less would be another verdict
            raise failed.exceptions[0] from None
        return [vote.result() for vote in votes]

    async def _one(
        self, desk: "_Desk", name: str, asked: tuple[str, str], secrets: Mapping[str, str]
    ) -> _Vote:
        provider, _, model = name.partition(":")
        options = self._options | _key(provider, secrets)
        try:
            async with desk.free, desk.model(provider, model, options) as open_model:
                async with asyncio.timeout(self._seconds):
                    return await self._asked(open_model, name, asked, secrets)
        except TimeoutError:
            raise JudgeFailed(f"the judge {name} gave no verdict within {self._seconds:g} s") from None
        except (ModelError, ValueError) as error:
            raise JudgeFailed(f"the judge {name} failed: {error}") from None

    async def _asked(
        self, model: Model, name: str, asked: tuple[str, str], secrets: Mapping[str, str]
    ) -> _Vote:
        messages: list[Message] = [SystemMessage(asked[0]), UserMessage(text_blocks(asked[1]))]
        used, problem = Usage(), ""
        for attempt in range(1, self._attempts + 1):
            reply = await model.answer(messages, before_attempt=self._spend)
            used += reply.usage
            spent = reply.usage.input_tokens + reply.usage.output_tokens
            self.tokens += spent if not reply.usage.unknown else len(repr([messages, reply.text])) // 4
            if reply.stop == "refusal":
                raise JudgeFailed(f"the judge {name} refused to grade")
            said = hidden(reply.text[: 2 * _LONGEST_RECORDED], secrets.values())
            try:
                scores = read_reply("" if reply.stop == "length" else reply.text, self.rubric)
                return _Vote(name, said[:_LONGEST_RECORDED], scores, used)
            except ValueError as error:
                problem = hidden(str(error), secrets.values())[:500]
            log.warning("judge %s: reply %d cannot be used: %s: %r", name, attempt, problem, said[:200])
            again = f"Your reply cannot be used: {problem}. Reply again with the JSON object only."
            messages += [reply] if reply.text.strip() else []
            messages.append(UserMessage(text_blocks(again)))
        raise JudgeFailed(f"the judge {name} gave no usable verdict in {self._attempts} attempts: {problem}")

    def _spend(self) -> None:
        if self._most_requests is not None and self.requests >= self._most_requests:
            raise JudgeFailed(f"the judge has used up its {self._most_requests} requests (max_requests)")
        if self._most_tokens is not None and self.tokens >= self._most_tokens:
            raise JudgeFailed(f"the judge has used up its {self._most_tokens} tokens (max_total_tokens)")
        self.requests += 1

    def _verdict(
        self, asked: tuple[str, str], votes: list[_Vote], secrets: Mapping[str, str], *, cached: bool
    ) -> Verdict:
        scores = {each.name: self._voted([vote.scores[each.name] for vote in votes]) for each in self.rubric}
        usage = sum((vote.usage for vote in votes), Usage())
        record = {
            "replies": [{"model": vote.model, "text": vote.text} for vote in votes],
            "scores": scores,
            "cached": cached,
            "tokens": 0 if cached else usage.input_tokens + usage.output_tokens,
            "cost": 0.0 if cached else usage.cost,
            "asked": {"system": asked[0], "user": asked[1]},
        }
        return Verdict(
            rewards={each.name: each.weight * scores[each.name] / each.scale for each in self.rubric},
            scores=scores,
            metadata={"judge": masked(record, lambda text: hidden(text, secrets.values()))},
        )

    def _voted(self, scores: list[float]) -> float:
        if self._vote == "mean":
            return fmean(scores)
        counts = Counter(scores)
        return min(score for score in counts if counts[score] == max(counts.values()))


class _Turn(asyncio.Lock):
    """Equal texts that are graded at the same time: the first asks, for all of them."""

    failure: str | None = None


class _Desk:
    """What the verdicts of one event loop share. No connection is kept that nobody uses."""

    def __init__(self, concurrency: int) -> None:
        self.free = asyncio.Semaphore(concurrency)
        self.turns: WeakValueDictionary[tuple[bytes | str, ...], _Turn] = WeakValueDictionary()
        self._open: dict[tuple[Any, ...], Model] = {}
        self._users: Counter[tuple[Any, ...]] = Counter()

    @asynccontextmanager
    async def model(self, provider: str, name: str, options: dict[str, Any]) -> AsyncIterator[Model]:
        key = (provider, name, options.get("api_key"))
        if key not in self._open:
            self._open[key] = Model(provider, name, **options)
        self._users[key] += 1
        try:
            yield self._open[key]
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                await self._open.pop(key).close()


def _key(provider: str, secrets: Mapping[str, str]) -> dict[str, str]:
    names = api_of(MODEL_NAMES[provider]).key_variables
    found = (secrets.get(name) or secrets.get(name.lower()) for name in names)
    key = next(filter(None, found), None)
    return {"api_key": key} if key else {}


def _check(models: Sequence[str], rubric: Sequence[Criterion], vote: str) -> None:
    if not models or not rubric:
        raise ValueError("a judge needs a model and a rubric of at least one criterion")
    for name in models:
        provider, _, model = name.partition(":")
        if provider not in MODEL_NAMES or not model:
            raise ValueError(f"{name!r} is not a model: use PROVIDER:MODEL, with {', '.join(MODEL_NAMES)}")
    if len({each.name for each in rubric}) < len(rubric):
        raise ValueError("two criteria have the same name")
    if vote not in ("mean", "majority"):
        raise ValueError(f"vote is 'mean' or 'majority', not {vote!r}")
