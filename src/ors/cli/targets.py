"""TARGETs: from what a user types to environment classes, or one line that says why not."""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import ors
from ors.cli.errors import Unreachable, Wrong, one_line, shown_path
from ors.errors import InvalidEnvironment

__all__ = ["as_url", "built", "environments", "roots"]

NOT_THE_AUTHORS = (Path(__file__).parent, Path(importlib.__file__).parent)
NOT_SEARCHED = re.compile(r"\..*|__pycache__|tests?|venv|node_modules|site-packages|build|dist")
NOT_IMPORTED = re.compile(r"test_.*|.*_test|conftest|setup|noxfile|__main__")
NEITHER = "neither the URL of a server, nor a module, nor a file or folder that exists"
USES_ORS = re.compile(rb"^\s*(from|import)\s+ors\b", re.MULTILINE)


def as_url(text: str) -> str | None:
    """The URL of a server, if that is what `text` is; also for a plain host:port."""
    if text.startswith(("http://", "https://")):
        return text.rstrip("/")
    return f"http://{text.rstrip('/')}" if re.fullmatch(r"[\w.-]+:\d{1,5}(/.*)?", text) else None


@dataclass(frozen=True)
class Source:
    """A module, and where it is imported from."""

    module: str
    root: Path
    """What must be on sys.path, so that the module finds its neighbours."""
    file: Path | None = None

    def __str__(self) -> str:
        return shown_path(self.file) if self.file else self.module


def environments(targets: Iterable[str]) -> "list[type[ors.Environment]]":
    """The environment classes of all targets, each once.

    Raises:
        Unreachable: one cannot be imported, or has no environment. Wrong: one is not a target.
    """
    return list(dict.fromkeys(cls for target in targets for cls in _environments(target)))


def roots(targets: Iterable[str]) -> list[Path]:
    """The folders whose files a target is made of."""
    found: dict[Path, None] = {}
    for target in targets:
        place, _ = _split(target)
        for source in _sources(place) or ():
            found[source.root if source.file else _home(source)] = None
    return list(found)


def _environments(target: str) -> "list[type[ors.Environment]]":
    if as_url(target):
        raise Wrong(
            f"{target} is a URL; a TARGET is code: package.module[:Class], path/file.py[:Class], a folder"
        )
    place, name = _split(target)
    sources = _sources(place)
    if name is not None:
        return [_class(_imported(source), name, source) for source in sources[:1]]
    found = [cls for source in sources for cls in _classes(_imported(source))]
    if not found:
        raise Unreachable(f"No environment in {target}: it has no class that derives from ors.Environment")
    return found


def _split(target: str) -> tuple[str, str | None]:
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place and name.isidentifier() else (target, None)


def _sources(place: str) -> list[Source]:
    path = Path(place)
    if not place or "://" in place:
        raise Wrong(f"{place!r} is {NEITHER}")
    if path.is_dir():
        return _in_folder(path)
    if place.endswith(".py") or "/" in place or "\\" in place:
        if not path.is_file():
            raise Unreachable(f"No such file or folder: {place}")
        return [_of_file(path.resolve())]
    if path.is_file() or not all(part.isidentifier() for part in place.split(".")):
        raise Wrong(f"{place!r} is {'a file, but not of Python' if path.is_file() else NEITHER}")
    return [Source(place, Path.cwd())]


def _of_file(path: Path) -> Source:
    root, parts = path.parent, [] if path.stem == "__init__" else [path.stem]
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        parts.insert(0, root.name)
        root = root.parent
    return Source(".".join(parts) or path.stem, root, path)


def _in_folder(folder: Path) -> list[Source]:
    found = [_of_file(path.resolve()) for path in _python_files(folder)]
    if not found:
        raise Unreachable(f"No environment in {folder}: no Python file there imports ors")
    return found


def _python_files(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not NOT_SEARCHED.fullmatch(path.name):
                yield from _python_files(path)
        elif _may_have_environments(path):
            yield path


def _may_have_environments(path: Path) -> bool:
    # Of a folder, only what has to do with us is imported: a script next to it may do anything.
    named = path.suffix == ".py" and not NOT_IMPORTED.fullmatch(path.stem)
    return named and USES_ORS.search(path.read_bytes()) is not None


def _home(source: Source) -> Path:
    sys.path[:0] = [str(source.root)] if str(source.root) not in sys.path else []
    spec = find_spec(source.module.partition(".")[0])
    if spec is None or spec.origin is None:
        return source.root
    return Path(spec.origin).parent


def _imported(source: Source) -> ModuleType:
    if str(source.root) not in sys.path:
        sys.path.insert(0, str(source.root))
    try:
        return _by_file(source) if source.file else import_module(source.module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and not source.file and error.name == source.module:
            raise Unreachable(f"{source.module!r} is {NEITHER}") from None
        place = _place(error, source.root)
        raise Unreachable(f"Cannot import {source}: {one_line(error)}{place}") from error


def _by_file(source: Source) -> ModuleType:
    assert source.file is not None
    if "." in source.module or _finds(source):
        module = import_module(source.module)
        if module.__file__ and Path(module.__file__).resolve() != source.file:
            raise ImportError(f"another {source.module} is imported already, {shown_path(module.__file__)}")
        return module
    # Another module has this name, such as one of the standard library: this one gets a name of its own.
    name = f"{source.module}_{abs(hash(source.file)):x}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, source.file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _finds(source: Source) -> bool:
    try:
        spec = find_spec(source.module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == source.file


def _classes(module: ModuleType) -> "list[type[ors.Environment]]":
    found = [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, ors.Environment)
        and value is not ors.Environment
        and name[0] != "_"
    ]
    inside = (module.__name__, module.__name__ + ".")
    own = [cls for cls in found if cls.__module__ == inside[0] or cls.__module__.startswith(inside[1])]
    # Abstract ones alone: the server says what they lack.
    return [cls for cls in own or found if not inspect.isabstract(cls)] or own


def _class(module: ModuleType, name: str, source: Source) -> "type[ors.Environment]":
    cls: Any = getattr(module, name, None)
    if cls is None:
        there = ", ".join(found.__name__ for found in _classes(module)) or "no environment"
        raise Unreachable(f"{source} has no {name}; it has {there}")
    if not inspect.isclass(cls) or not issubclass(cls, ors.Environment):
        raise Unreachable(f"{name} is no environment: it does not derive from ors.Environment{_defined(cls)}")
    return cls


def built(classes: "Sequence[type[ors.Environment]]", **options: Any) -> "ors.Server":
    """A server of these environments.

    Raises:
        Unreachable: one of them is written wrongly.
    """
    try:
        return ors.Server(classes, **options)
    except InvalidEnvironment as error:
        raise Unreachable(" ".join(str(error).split()) + _defined(_culprit(classes))) from error
    except Exception as error:
        # An author's list_splits or list_tools may raise anything.
        place = _place(error, Path(inspect.getsourcefile(classes[0]) or ".").parent)
        raise Unreachable(f"Cannot serve: {one_line(error)}{place}") from error


def _culprit(classes: "Iterable[type[ors.Environment]]") -> "type[ors.Environment] | None":
    for cls in classes:
        try:
            ors.Server([cls])
        except InvalidEnvironment:
            return cls
    return None


def _defined(thing: Any) -> str:
    try:
        return f" ({shown_path(inspect.getsourcefile(thing) or '')}:{inspect.getsourcelines(thing)[1]})"
    except (TypeError, OSError):
        return ""


def _ours(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in NOT_THE_AUTHORS)


def _place(error: BaseException, root: Path) -> str:
    """Where an author's code failed: the deepest line of it below `root`, or else the deepest of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({shown_path(error.filename)}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not _ours(Path(frame.filename))
    ]
    own = [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(root) and "site-packages" not in frame.filename
    ]
    for frame in (own or frames)[-1:]:
        return f" ({shown_path(frame.filename)}:{frame.lineno})"
    return ""
