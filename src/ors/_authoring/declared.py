"""What an environment class declares: its parameters in `Config`, and its tasks in `tasks` or methods."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import getattr_static, isclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError

from ors._authoring.tools import Spawn, call
from ors.errors import InvalidEnvironment
from ors.types import JSONObject

if TYPE_CHECKING:  # slow to import, and not needed by an author's code
    import asyncio
    from concurrent.futures import Future


def model_of(cls: type) -> type[BaseModel] | None:
    """The model of the parameters; None if a class has none, or uses one of the two names for its own."""
    found, now = getattr_static(cls, "Config", None), getattr_static(cls, "config", None)
    is_model = isclass(found) and issubclass(found, BaseModel) and isinstance(now, BaseModel | None)
    return found if is_model else None


def declare_config(cls: Any) -> None:
    """Gives a class that declares `Config` the default values. Without them, the server asks for values."""
    if "Config" in cls.__dict__ and "config" not in cls.__dict__ and (model := model_of(cls)) is not None:
        required = any(field.is_required() for field in model.model_fields.values())
        cls.config = None if required else validated(cls, {})


def validated(cls: type, values: Mapping[str, Any]) -> BaseModel | None:
    """The parameters with these values, and those of the class for the rest. Raises InvalidEnvironment."""
    if (model := model_of(cls)) is None:
        if values:
            raise InvalidEnvironment(f"{cls.__name__} has no parameters: it declares no class Config")
        return None
    now = getattr_static(cls, "config", None)
    if not values and isinstance(now, model):
        return now
    given = {name: getattr(now, name) for name in now.model_fields_set} if isinstance(now, model) else {}
    extra: Literal["forbid"] | None = None if model.model_config.get("extra") == "allow" else "forbid"
    try:
        return model.model_validate({**given, **values}, extra=extra, by_alias=True, by_name=True)
    except ValidationError as error:
        raise InvalidEnvironment("; ".join(_told(cls, model, each) for each in error.errors())) from None


def _told(cls: type, model: type[BaseModel], error: Mapping[str, Any]) -> str:
    owner, name = cls.__name__, ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{owner} has no parameter {name!r}; its parameters: {', '.join(model.model_fields) or 'none'}"
    if error["type"] == "missing":
        return f"{owner} needs the parameter {name!r}: {owner}.configured({name}=…), or --set {name}=VALUE"
    given = f" with {name}={error['input']!r:.100}" if name else ""
    return f"{owner} cannot be configured{given}: {' '.join(error['msg'].split())}"


def described(cls: type) -> dict[str, Any] | None:
    """The parameters as JSON: {"schema": …, "values": …}; None if the class has none."""
    model, now = model_of(cls), getattr_static(cls, "config", None)
    if model is None or not isinstance(now, model):
        return None
    try:
        return {"schema": model.model_json_schema(by_alias=False), "values": now.model_dump(mode="json")}
    except (PydanticUserError, PydanticSerializationError) as error:
        raise InvalidEnvironment(f"{cls.__name__}.Config cannot be written as JSON: {error}") from None


# ── Tasks ────────────────────────────────────────────────────────────────────────────────────────


class Listing:
    """The task lists of one class, by split.

    The first request lists the tasks; concurrent ones, from any thread or event loop, wait for it.
    """

    def __init__(self, owner: type) -> None:
        self._owner: Any = owner
        self._known: dict[str, Sequence[JSONObject]] = {}
        self._asked: dict[str, Future[Sequence[JSONObject]]] = {}
        """Lists that are there, or that are being made. What has failed is removed, and made again."""
        self._running: set[asyncio.Task[None]] = set()

    def __reduce__(self) -> tuple[type["Listing"], tuple[type]]:
        # A class that is pickled to another process lists its tasks again there.
        return Listing, (self._owner,)

    def known(self, split: str) -> Sequence[JSONObject] | None:
        return self._known.get(split)

    async def tasks(self, split: str, spawn: Spawn | None = None) -> Sequence[JSONObject]:
        import asyncio
        from concurrent.futures import Future

        if (known := self.known(split)) is not None:
            return known
        made: Future[Sequence[JSONObject]] = Future()
        future = self._asked.setdefault(split, made)  # in one step, whichever threads do so
        if future is made:
            # A task of its own: if the first request is cancelled, the others still wait for it.
            listing = asyncio.create_task(self._list(split, future, spawn))
            self._running.add(listing)
            listing.add_done_callback(self._running.discard)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def _list(self, split: str, future: "Future[Sequence[JSONObject]]", spawn: Spawn | None) -> None:
        try:
            listed = self._checked(await call(self._owner.list_tasks, split, spawn=spawn))
            self._known[split] = listed
            future.set_result(listed)
        except BaseException as error:
            del self._asked[split]  # before requests that wait get the error: the next one lists again
            interrupted = RuntimeError(f"listing tasks was interrupted: {type(error).__name__}")
            future.set_exception(error if isinstance(error, Exception) else interrupted)

    def _checked(self, listed: Any) -> Sequence[JSONObject]:
        where = f"{self._owner.__name__}.list_tasks"
        if listed is None:
            wrong = "returned None for this split, not a list of tasks; is a `return` missing?"
            raise TypeError(f"{where} {wrong}")
        if isinstance(listed, str | bytes | Mapping) or not hasattr(listed, "__iter__"):
            raise TypeError(f"{where} must return a list of tasks, not {type(listed).__name__}")
        # A generator yields its tasks only once, so they are stored.
        tasks: Sequence[Any] = listed if isinstance(listed, Sequence) else list(listed)
        if isinstance(tasks, list | tuple):  # other sequences may create their items on demand
            for index, task in enumerate(tasks):
                if not isinstance(task, Mapping | BaseModel):
                    found = f"number {index} is {type(task).__name__}"
                    raise TypeError(f"{where}: a task must be a dictionary or a model, but {found}")
        return tasks


_METHODS = ("list_splits", "list_tasks")
_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def declare_tasks(cls: Any, base: type) -> None:
    """Gives a class that declares `tasks`, and has no methods for them, `list_splits` and `list_tasks`."""
    declared = cls.__dict__.get("tasks")
    if not isinstance(declared, Mapping | str | os.PathLike):
        return
    if any(getattr_static(cls, name) is not getattr_static(base, name) for name in _METHODS):
        return
    cls.list_splits, cls.list_tasks = classmethod(_list_splits), classmethod(_list_tasks)


def _list_splits(cls: Any) -> list[str]:
    return list(_by_split(cls))


def _list_tasks(cls: Any, split: str) -> Any:
    found = _by_split(cls)[split]
    if not isinstance(found, str | os.PathLike):
        return found
    from ors.task_files import tasks_from  # late: most environments have no files

    return tasks_from(_beside(cls, found))


def _by_split(cls: Any) -> Mapping[str, Any]:
    if isinstance(declared := cls.tasks, Mapping):
        return declared
    path = _beside(cls, cls.tasks)
    if not path.is_dir():
        return {"train": path}
    return {file.stem: file for file in sorted(path.iterdir()) if file.suffix.lower() in _SUFFIXES}


def task_files(cls: Any) -> list[Path]:
    """The files with the tasks that a class declares."""
    if not isinstance(cls.tasks, Mapping | str | os.PathLike):
        return []
    with suppress(OSError):  # there is no such folder, which a listing says
        return [_beside(cls, each) for each in _by_split(cls).values() if isinstance(each, str | os.PathLike)]
    return []


def _beside(cls: Any, path: str | os.PathLike[str]) -> Path:
    """A path that begins in the folder of the class's module."""
    owner = next(each for each in cls.__mro__ if "tasks" in each.__dict__)
    home = getattr(sys.modules.get(owner.__module__), "__file__", None)
    return Path(home or ".").parent / path
