"""`ors run`: runs a file that was written for openreward or ors-sdk, unchanged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from ors import Limits
from ors.cli.commands.serve import Serving, serving_flags
from ors.cli.errors import Unreachable, WrongUsage
from ors.cli.options.shared import TARGET, Command, HostingFlags, given, options, typed
from ors.cli.targets.program import DATA, Program, has_data, with_data
from ors.openreward import Names
from ors.openreward.sandboxes import AsyncOpenReward
from ors.server import LAUNCH, is_loopback
from ors.server.sessions.admission import Keys

CHOOSE = (
    "The real openreward is installed too: pass --openreward ours to run on ors, "
    "or --openreward installed to run the file on the real one"
)


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
