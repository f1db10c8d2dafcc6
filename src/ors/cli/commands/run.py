"""`ors run`: runs a file that was written for openreward or ors-sdk, unchanged."""

import json
import os
import runpy
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ors import Limits
from ors.cli.commands.serve import Serving, serving_flags
from ors.cli.errors import Unreachable, WrongUsage, keep_report_apart, one_line, shown_path
from ors.cli.options.shared import TARGET, Command, HostingFlags, given, options, typed
from ors.cli.targets.process import started
from ors.cli.targets.resolve import raised_at
from ors.openreward import Names
from ors.openreward.sandboxes import AsyncOpenReward
from ors.server import LAUNCH, is_loopback
from ors.server.process.system import LIFELINE, tied
from ors.server.sessions.admission import Keys

DATA = "/orwd_data"
"""Where programs written for openreward find their data."""
BY_HAND = f"as root, `ln -s FOLDER {DATA}` does the same, without --data"
CHOOSE = (
    "The real openreward is installed too: pass --openreward ours to run on ors, "
    "or --openreward installed to run the file on the real one"
)


@dataclass(frozen=True)
class Program:
    """A file, or a module as in `python -m`, with its arguments."""

    name: str
    is_module: bool
    arguments: Sequence[str]

    @property
    def folder(self) -> Path:
        return Path.cwd() if self.is_module else Path(self.name).resolve().parent

    def run(self) -> None:
        """Runs it as `python` would."""
        if not self.is_module and not os.path.exists(self.name):
            raise Unreachable(f"No such file or folder: {self.name}")
        keep_report_apart()
        sys.path.insert(0, str(self.folder))
        sys.argv = [self.name, *self.arguments]
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(os.path.abspath(self.name), run_name="__main__")
        except click.ClickException:  # of the server that it runs
            raise
        except ModuleNotFoundError as error:
            raise Unreachable(f"{self.name} needs {self._missing(error)}") from error
        except Exception as error:
            lacks = self.lacking(str(error)) if isinstance(error, OSError) else ""
            why = f"{one_line(error)}{raised_at(error, self.folder)}{lacks}"
            raise Unreachable(f"Cannot run {self.name}: {why}") from error

    def lacking(self, problem: str) -> str:
        """What helps against a problem of a program that reads data which is not there."""
        if os.path.exists(DATA):
            return ""
        code = self.folder.rglob("*.py")
        wanted = DATA in problem or any(DATA in path.read_text(errors="replace") for path in code)
        return f"; pass --data FOLDER, which becomes {DATA}" if wanted else ""

    def _missing(self, error: ModuleNotFoundError) -> str:
        package = str(error.name or error).partition(".")[0]
        beside = self.folder / "requirements.txt"
        what = f"-r {shown_path(beside)}" if beside.is_file() else package
        return f"the package {package!r}, which is not installed: pip install {what}"


def has_data(folder: str) -> bool:
    return os.path.exists(DATA) and os.path.samefile(folder, DATA)


def with_data(folder: str, keys: Sequence[str]) -> int:
    """Runs this command once more, in a mount namespace in which `folder` is /orwd_data.

    Pandas and pyarrow open files in C, so nothing in Python can do it.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise Unreachable(f"--data needs bubblewrap (`apt install bubblewrap`); {BY_HAND}")
    with tied() as lifeline:
        told, tell = os.pipe()
        within = [bwrap, "--die-with-parent", "--info-fd", str(tell), *_mounts(folder), "--"]
        child = started({LIFELINE: str(lifeline)}, [lifeline, tell], keys, within=within)
        os.close(tell)
        with open(told) as pipe:
            about = pipe.read()
        if not about:
            child.wait()
            raise Unreachable(f"bubblewrap cannot mount {folder} as {DATA} here; {BY_HAND}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Not to bubblewrap, which would end at once, and the server with it.
            signal.signal(number, lambda number, frame: os.kill(json.loads(about)["child-pid"], number))
        return child.wait()


def _mounts(folder: str) -> Iterator[str]:
    yield from ("--tmpfs", "/")
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), str(path))
        elif path.is_dir() and str(path) != DATA:
            yield from ("--dev-bind", str(path), str(path))
    yield from ("--ro-bind", os.path.abspath(folder), DATA)


@dataclass(frozen=True)
class Launcher:
    """Serves what a program would: options of the command line win over its arguments."""

    serving: Serving
    launched: list[str] = field(default_factory=list)

    def __call__(self, classes: Sequence[Any], options: dict[str, Any], address: dict[str, Any]) -> None:
        self.launched.extend(cls.__name__ for cls in classes)
        flags = self.serving.access
        file = {"insecure", "ssl_certfile", "ssl_keyfile"}
        access = replace(flags, **{name: getattr(flags, name) or address[name] for name in file})
        keys = self.serving.keys or [*Keys(options["api_keys"]).by_name.values()]
        open_to_all = not (keys or access.insecure or is_loopback(address["host"]))
        serving = replace(
            self.serving,
            host=self.serving.host if given("host") or open_to_all else address["host"],
            port=self.serving.port if given("port") else address["port"],
            return_errors=_chosen("return_errors", self.serving.return_errors, options),
            limits=self._limits(options["limits"]),
            access=access,
            keys=keys,
        )
        how = {**options, **serving.options(), "slot": _chosen("slot", serving.workers.slot, options)}
        how["observers"] = [*options["observers"], *how["observers"]]
        for name in ("cors_origins", "inspector"):
            how[name] = how[name] or options[name]
        serving.check(alone=True)
        serving.serve(classes, how)

    def _limits(self, file: Limits) -> Limits:
        chosen = [each.name for each in fields(Limits) if given(each.name)]
        return replace(file, **{name: getattr(self.serving.limits, name) for name in chosen})


def _chosen(name: str, value: Any, file: Mapping[str, Any]) -> Any:
    return value if given(name) else file[name]


@click.command(
    cls=Command,
    examples=["ors run server.py --port 8000", "ors run server.py --data data", "ors run -m package"],
)
@click.argument("program", type=TARGET, metavar="FILE|MODULE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENT...]")
@click.option("-m", "is_module", is_flag=True, help="Run a module, as `python -m` does.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Folder that the program finds as /orwd_data. Needs bubblewrap.",
)
@click.option(
    "--openreward",
    type=click.Choice(["ours", "installed"]),
    help="What `import openreward` means, if the real one is installed: ors, or the real one.",
)
@serving_flags
@options("Sandboxes", "hosting", HostingFlags)
def run(
    program: str,
    arguments: Sequence[str],
    is_module: bool,
    data: str | None,
    openreward: str | None,
    hosting: HostingFlags,
    serving: Serving,
) -> None:
    """Run a file written for openreward or ors-sdk, as `python FILE` would, and serve what it serves.

    In this process alone, `import openreward` finds the names of ors. Options win over what the file says.
    """
    if openreward is None and find_spec("openreward") is not None:
        raise WrongUsage(CHOOSE)
    code = Program(program, is_module, arguments)
    serving = replace(serving.prepared([program]), lacking=code.lacking)
    if data is not None and not has_data(data):
        raise click.exceptions.Exit(with_data(data, serving.secrets))
    if openreward == "installed":
        _refuse_flags()
        code.run()
        return
    Names().install()
    AsyncOpenReward.hosting = hosting.hosting(Path(DATA) if Path(DATA).is_dir() else None)
    serving.delegate()
    launcher = Launcher(serving)
    LAUNCH.set(launcher)
    code.run()
    if not launcher.launched:
        raise Unreachable(f"{code.name} ended without calling run() of a Server")


def _refuse_flags() -> None:
    own = {"program", "arguments", "is_module", "data", "openreward"}
    for name in click.get_current_context().params.keys() - own:
        if typed(name):
            flag = name.replace("reloading", "reload").replace("as_json", "json").replace("_", "-")
            raise WrongUsage(f"--{flag} has no effect on the real openreward: remove it")
