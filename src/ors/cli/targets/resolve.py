"""Resolves a TARGET to environment classes, with their parameters, or explains in one line why that fails."""

import importlib
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import click
from pydantic import TypeAdapter

import ors
from ors._identity import GROUP
from ors.cli.errors import Unreachable, WrongUsage, keep_report_apart, one_line, shown_path
from ors.cli.settings import erase_secrets
from ors.errors import InvalidEnvironment
from ors.libraries import library_environments, library_of

NOT_THE_AUTHORS = (Path(__file__).parents[1], Path(importlib.__file__).parent)
NOT_SEARCHED = re.compile(r"\..*|__pycache__|tests?|venv|node_modules|site-packages|build|dist")
NOT_IMPORTED = re.compile(r"test_.*|.*_test|conftest|setup|noxfile|__main__")
NEITHER = "neither the URL of a server, nor an installed environment, a module, a file or a folder"
USES_ORS = re.compile(rb"^\s*(from|import)\s+ors\b", re.MULTILINE)

F = TypeVar("F", bound=Callable[..., Any])
SET_AT_START = "--set needs a TARGET: the parameters of a server are set where it is started"
SETTINGS = "ors.settings"
"""Where the context of a command keeps what `--set` has given."""


class Installed(NamedTuple):
    """An environment that a package offers."""

    name: str
    version: str
    package: str
    code: str
    """`package.module:Class`."""
    folder: Path


def installed() -> list[Installed]:
    """All of them, by name. Reads the metadata of every installed package."""
    found = []
    for point in entry_points(group=GROUP):
        assert point.dist is not None  # it comes from a distribution
        folder = Path(str(point.dist.locate_file("")))
        found.append(Installed(point.name, point.dist.version, point.dist.name, point.value, folder))
    return sorted(found)


def find(target: str) -> Installed | None:
    """The environment that a name or `NAME==VERSION` stands for; None if no package offers that name."""
    name, exactly, version = target.partition("==")
    offered = installed()
    found = [one for one in offered if _normal(one.name) == _normal(name)]
    if len(found) > 1:
        codes = " or ".join(f"{one.code} ({one.package})" for one in found)
        raise Unreachable(f"Several packages offer {name!r}: give {codes} instead")
    if exactly and not found:
        names = ", ".join(one.name for one in offered) or "none"
        raise Unreachable(f"No installed package offers {name!r}. Installed environments: {names}")
    if exactly and found[0].version != version:
        wanted = f"pip install '{found[0].package}=={version}'"
        raise Unreachable(f"{name} {found[0].version} is installed, not {version}: {wanted}")
    return found[0] if found else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def as_url(text: str) -> str | None:
    """Returns `text` as a URL if it is one or is host:port, else None."""
    if text.startswith(("http://", "https://")):
        return text.rstrip("/")
    return f"http://{text.rstrip('/')}" if re.fullmatch(r"[\w.-]+:\d{1,5}(/.*)?", text) else None


@dataclass(frozen=True)
class Source:
    module: str
    root: Path
    """Added to sys.path, so that the module can import the files beside it."""
    file: Path | None = None

    def __str__(self) -> str:
        return shown_path(self.file) if self.file else self.module

    def make_importable(self) -> None:
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))


def environments(
    targets: Iterable[str], settings: Iterable[str] | None = None, names: Iterable[str] = ()
) -> "list[type[ors.Environment]]":
    """The environments of these TARGETs, and of NAME:TARGETs, with what `settings` or else `--set` says."""
    keep_report_apart()
    erase_secrets()
    found = list(dict.fromkeys(cls for target in targets for cls in _environments(target)))
    found += [_renamed(each) for each in names if each]
    return configured(found, given_settings() if settings is None else settings)


def _renamed(text: str) -> "type[ors.Environment]":
    name, _, target = text.partition(":")
    if not name or not target:
        raise WrongUsage(f"--as {text}: give NAME:TARGET, as in --as hard:adder")
    return one_environment(target).configured(name)


def one_environment(target: str) -> "type[ors.Environment]":
    cls, *others = _environments(target)
    if others:
        raise WrongUsage(f"{target} has several environments: name one, as in {target}:{cls.__name__}")
    return cls


def roots(targets: Iterable[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for target in targets:
        library = _library(target)
        for source in [Source(library, Path.cwd())] if library else _located(target)[0]:
            found[source.root if source.file else _home(source)] = None
    return list(found)


def _environments(target: str) -> "list[type[ors.Environment]]":
    if as_url(target):
        raise WrongUsage(
            f"{target} is a URL. A TARGET is code: package.module[:Class], path/file.py[:Class] or a folder"
        )
    if _library(target):
        return _of_library(target)
    sources, name = _located(target)
    if name is not None:
        return [_class(_imported(source), name, source) for source in sources[:1]]
    found = [cls for source in sources for cls in _classes(_imported(source))]
    if not found:
        raise Unreachable(f"No environment in {target}: no class derives from ors.Environment")
    return found


def _library(target: str) -> str | None:
    """The library that a target names; a module of that name in the current folder goes first."""
    library = library_of(target)
    own = library and (Path(f"{library}.py").exists() or Path(library, "__init__.py").exists())
    return None if own else library


def _of_library(target: str) -> "list[type[ors.Environment]]":
    try:
        return library_environments(target)
    except (Exception, SystemExit) as error:  # of the library
        ours = isinstance(error, InvalidEnvironment)
        text = " ".join(str(error).split()) if ours else f"Cannot import {target}: {one_line(error)}"
        raise Unreachable(text) from error


def _located(target: str) -> tuple[list[Source], str | None]:
    """Where the code of a target is, and the class that it names."""
    is_path = target.endswith(".py") or "/" in target or "\\" in target or Path(target).exists()
    # Entry points take time, so paths are not looked up.
    if not is_path and ":" not in target and (named := find(target)) is not None:
        module, name = _split(named.code)
        return [Source(module, named.folder)], name
    place, name = _split(target)
    return _sources(place), name


def _split(target: str) -> tuple[str, str | None]:
    place, colon, name = target.rpartition(":")
    return (place, name) if colon and place and name.isidentifier() else (target, None)


def _sources(place: str) -> list[Source]:
    path = Path(place)
    if not place or "://" in place:
        raise WrongUsage(f"{place!r} is {NEITHER}")
    if path.is_dir():
        return _in_folder(path)
    if place.endswith(".py") or "/" in place or "\\" in place:
        if not path.is_file():
            raise Unreachable(f"No such file or folder: {place}")
        return [_of_file(path.resolve())]
    if path.is_file() or not all(part.isidentifier() for part in place.split(".")):
        raise WrongUsage(f"{place!r} is {'not a Python file' if path.is_file() else NEITHER}")
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
        elif path.suffix != ".py" or NOT_IMPORTED.fullmatch(path.stem):
            continue
        elif USES_ORS.search(path.read_bytes()):  # other scripts could do anything
            yield path


def _home(source: Source) -> Path:
    source.make_importable()
    file = _found(source.module.partition(".")[0])
    return source.root if file is None else file.parent


def _imported(source: Source) -> ModuleType:
    source.make_importable()
    try:
        return _by_file(source, source.file) if source.file else import_module(source.module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and not source.file and error.name == source.module:
            raise Unreachable(f"{source.module!r} is {NEITHER}") from None
        place = raised_at(error, source.root)
        raise Unreachable(f"Cannot import {source}: {one_line(error)}{place}") from error


def _by_file(source: Source, file: Path) -> ModuleType:
    if "." in source.module or _found(source.module) == file:
        module = import_module(source.module)
        if module.__file__ and Path(module.__file__).resolve() != file:
            raise ImportError(f"another module {source.module} is loaded: {shown_path(module.__file__)}")
        return module
    # Another module, perhaps of the standard library, has this name, so this one gets a unique name.
    name = f"{source.module}_{abs(hash(file)):x}"
    if name not in sys.modules:
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _found(module: str) -> Path | None:
    """The file that an import of this module would run."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def _classes(module: ModuleType) -> "list[type[ors.Environment]]":
    found = [
        value
        for name, value in vars(module).items()
        if _is_environment(value) and value is not ors.Environment and name[0] != "_"
    ]
    own = [cls for cls in found if f"{cls.__module__}.".startswith(f"{module.__name__}.")]
    # If all are abstract, the server explains what is missing.
    return [cls for cls in own or found if not inspect.isabstract(cls)] or own


def _is_environment(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, ors.Environment)


def _class(module: ModuleType, name: str, source: Source) -> "type[ors.Environment]":
    cls: Any = getattr(module, name, None)
    if cls is None:
        there = ", ".join(found.__name__ for found in _classes(module)) or "none"
        raise Unreachable(f"{source} has no {name}. Environments: {there}")
    if not _is_environment(cls):
        raise Unreachable(f"{name} does not derive from ors.Environment{_defined(cls)}")
    environment: type[ors.Environment] = cls
    return environment


def built(classes: "Sequence[type[ors.Environment]]", **options: Any) -> "ors.Server":
    try:
        return ors.Server(classes, **options)
    except InvalidEnvironment as error:
        text = " ".join(str(error).split())
        raise Unreachable(text + _defined(_culprit(classes, text))) from error
    except Exception as error:
        # The author's list_splits or list_tools may raise anything.
        place = raised_at(error, Path(inspect.getsourcefile(classes[0]) or ".").parent)
        raise Unreachable(f"Cannot serve: {one_line(error)}{place}") from error


def _culprit(classes: "Iterable[type[ors.Environment]]", text: str) -> Any:
    """The method that the text of an error names as Class.method, or else its class."""
    owner, _, method = text.partition(" ")[0].rstrip(":").partition(".")
    for cls in classes:
        for each in (*cls.__mro__, *(cls.toolsets or ())):
            if each.__name__ == owner:
                found = vars(each).get(method, cls)
                return inspect.unwrap(getattr(found, "__func__", found))
    return None


def _defined(thing: Any) -> str:
    if thing is None:
        return ""
    try:
        return f" ({shown_path(inspect.getsourcefile(thing) or '')}:{inspect.getsourcelines(thing)[1]})"
    except (TypeError, OSError):
        return ""


def raised_at(error: BaseException, root: Path) -> str:
    """Place of an error in the author's code: the deepest frame below `root`, else the deepest one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({shown_path(error.filename)}:{error.lineno})"
    shown = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if frame.filename.startswith("<") or any(map(path.is_relative_to, NOT_THE_AUTHORS)):
            continue
        shown = shown or f" ({shown_path(path)}:{frame.lineno})"
        if path.is_relative_to(root) and "site-packages" not in frame.filename:
            return f" ({shown_path(path)}:{frame.lineno})"
    return shown


# ── Parameters, by `--set`, and variants with names of their own, by `--as` ──────────────────────


def parameters(command: F) -> F:
    text = "Parameter of the environment; with several environments, ENVIRONMENT.NAME=VALUE. Repeatable."
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help=text)(command)


def given_settings() -> Sequence[str]:
    context = click.get_current_context(silent=True)
    return () if context is None else context.meta.get(SETTINGS, ())


def words(settings: Iterable[str], names: Iterable[str] = ()) -> list[str]:
    """The options of `ors serve` for these. There is always one of each, since a file may set others."""
    pairs = [("--set", each) for each in settings or ("",)] + [("--as", each) for each in names or ("",)]
    return [word for pair in pairs for word in pair]


def configured(classes: Sequence[Any], settings: Iterable[str]) -> list[Any]:
    """The classes with their parameters set by `NAME=VALUE` or `ENVIRONMENT.NAME=VALUE`."""
    values: dict[Any, dict[str, Any]] = {cls: {} for cls in classes}
    for setting in sorted(filter(None, settings), key=lambda each: "." in each.partition("=")[0]):
        key, equals, text = setting.partition("=")
        environment, _, name = key.rpartition(".")
        if not equals or not name:
            raise WrongUsage(f"--set {setting}: give NAME=VALUE, or ENVIRONMENT.NAME=VALUE")
        for cls in _meant(classes, environment, name):
            values[cls][name] = _value(cls, name, text)
    try:
        return [cls.configured(**given) if given else cls for cls, given in values.items()]
    except InvalidEnvironment as error:
        raise WrongUsage(f"--set: {error}") from None


def _meant(classes: Sequence[Any], environment: str, name: str) -> Sequence[Any]:
    if not environment:
        having = [cls for cls in classes if name in getattr(getattr(cls, "Config", None), "model_fields", ())]
        return having or classes[:1]  # which says that it has none
    found = [cls for cls in classes if cls.name().lower() == environment.lower()]
    if not found:
        names = ", ".join(cls.name().lower() for cls in classes)
        raise WrongUsage(f"--set {environment}.{name}: there is no environment {environment!r}, only {names}")
    return found


def _value(cls: Any, name: str, text: str) -> Any:
    """JSON where that fits, as for a list. Where it does not, as for the string "5", the text itself."""
    with suppress(Exception):  # it is no JSON, or of another type; the error of the text is clearer
        return TypeAdapter(cls.Config.model_fields[name].annotation).validate_python(json.loads(text))
    return text
