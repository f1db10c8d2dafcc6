"""`ors eval`: lets an agent play tasks of an environment, and reports how well it did."""

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from ors._identity import Identity
from ors.cli.errors import INTERRUPTED, Unreachable, WrongUsage, shown_path
from ors.cli.evaluation.plan import EvalPlan, TaskChoice, agent_of
from ors.cli.evaluation.report import print_report, report_json, verdict
from ors.cli.evaluation.run import EvalRun, affordable, stopped_by_signals
from ors.cli.options.evaluation import eval_flags, rules_of
from ors.cli.options.shared import FOLDER, TARGET, Command, api_key, as_json, environment, secrets, typed
from ors.cli.output.printing import print_json
from ors.cli.targets.connect import completed_secrets
from ors.cli.targets.process import reached
from ors.cli.targets.resolve import SET_AT_START, as_url, given_settings, parameters, roots, words
from ors.rollouts import EpisodeLimits
from ors.rollouts.agents import Prices
from ors.rollouts.records import Run, RunError, RunInfo, RunWriter, read_run
from ors.rollouts.records.info import read_info

ON_RESUME = frozenset((
    "resume", "retry", "allow_changed", "api_key", "base_url", "secret", "concurrency", "retries",
    "fail_under", "max_failed", "max_total_tokens", "max_total_cost", "max_total_seconds", "as_json",
))  # fmt: skip
"""Options that can be given with `--resume`. All others are those of the run."""


@click.command(
    "eval",
    cls=Command,
    examples=[
        "ors eval adder --model random --tasks 0:20 --out runs/random",
        "ors eval adder --model gold --split test --samples 2 --fail-under 1 --json",
        "ors eval --resume runs/begun",
    ],
)
@click.argument("where", metavar="[URL|TARGET]", type=TARGET, required=False)
@click.option(
    "-m",
    "--model",
    metavar="AGENT",
    help="Agent: openai:NAME (Chat Completions), openai-responses:NAME, anthropic:NAME, google:NAME, "
    "openrouter:NAME, claude-code:NAME, codex:NAME, gemini-cli:NAME, opencode:NAME, random, gold, human, "
    "module:object, …",
)
@click.option(
    "--out",
    type=FOLDER,
    help="Folder of the run.  [default: runs/<environment>-<agent>-<time>]",
)
@click.option("--resume", type=FOLDER, help="Resume: play missing episodes, and those that failed (--retry).")
@parameters
@environment
@secrets
@api_key
@eval_flags
@as_json
def eval_command(where: str | None, **given: Any) -> None:
    """Let an agent play tasks of an environment, and report how well it did.

    The run is kept in a folder, episode by episode. If it is interrupted or killed, --resume continues it.
    The key of a model provider comes from its usual environment variable, such as OPENAI_API_KEY. `ors runs
    show` shows a run again, `ors view` in the browser. A TARGET is served by a child process.

    Exit codes: 0 success, 1 if the mean reward is below --fail-under, 2 for wrong usage, 3 if more than
    --max-failed of the episodes failed or all did, if the run was stopped early (20 failures in a row,
    401, 403 or 404 from the model provider, or a limit of the run such as --max-total-tokens), or if the
    server was not reached.
    """
    if given["resume"] is None:
        if resuming := [name for name in ("retry", "allow_changed") if typed(name)]:
            raise WrongUsage(f"--{resuming[0].replace('_', '-')} works only with --resume FOLDER")
        plan, folder = _new_plan(where, given), given["out"]
    else:
        plan, folder = _resumed_plan(where, given), given["resume"]
    agent = agent_of(plan)
    given["concurrency"] = affordable(given["concurrency"])  # before a TARGET's server inherits the limit
    with reached(plan.target, api_key=given["api_key"], variant=words(plan.settings)) as url:
        local = as_url(plan.target) is None
        found = completed_secrets(
            url, given["api_key"], plan.environment, dict(given["secret"]), plan.secrets, local=local
        )
        run = EvalRun(replace(plan, secrets=tuple(found)), agent, url, given["api_key"], found)
        folder = folder or _default_folder(plan)
        interrupted = _played(run, folder, given)
    _conclude(read_run(folder), run, interrupted, given)


def _new_plan(where: str | None, given: Mapping[str, Any]) -> EvalPlan:
    if where is None or given["model"] is None:
        raise WrongUsage("Give a URL or TARGET and --model AGENT, or --resume FOLDER")
    rules, prices = rules_of(given), _prices(given)
    if prices is None and (rules["limits"].cost is not None or given["max_total_cost"] is not None):
        flag = "--max-cost" if rules["limits"].cost is not None else "--max-total-cost"
        raise WrongUsage(f"{flag} needs prices: give --prices")
    if "api_key" in (given["model_options"] or {}):
        raise WrongUsage("run.json keeps --model-options: set the key by a variable, such as OPENAI_API_KEY")
    options = {"temperature": given["temperature"], "seed": given["model_seed"]}
    return EvalPlan(
        target=where,
        environment=given["env"],
        settings=() if as_url(where) else tuple(given_settings()),
        model=given["model"],
        base_url=given["base_url"],
        model_options=dict(given["model_options"] or {})
        | {k: v for k, v in options.items() if v is not None},
        retries=given["retries"],
        prices=prices,
        tasks=TaskChoice(tuple(given["split"]), given["tasks"], given["limit"], given["seed"]),
        samples=given["samples"],
        secrets=tuple(name for name, _ in given["secret"]),
        **rules,
    )


def _prices(given: Mapping[str, Any]) -> Prices | None:
    if given["prices"] is None:
        return None
    try:
        return TypeAdapter(Prices).validate_python(given["prices"].get(given["model"], given["prices"]))
    except ValidationError:
        text = 'give {"input": 1.0, "output": 4.0, "cached": 0.1}, or one such object per model'
        raise WrongUsage(f"--prices has no prices of {given['model']}: {text}") from None


def _resumed_plan(where: str | None, given: Mapping[str, Any]) -> EvalPlan:
    if fixed := [name for name in given if typed(name) and name not in ON_RESUME]:
        flag = fixed[0].replace("_", "-")
        raise WrongUsage(f"--resume uses the options of the run: leave out --{flag}")
    folder: Path = given["resume"]
    try:
        plan = EvalPlan.from_json(read_run(folder).info.config, shown_path(folder))
    except RunError as error:
        raise WrongUsage(str(error)) from None
    target = where or plan.target
    if as_url(target) and typed("settings"):
        raise WrongUsage(SET_AT_START)
    return replace(
        plan,
        target=target,
        settings=tuple(given_settings()) if typed("settings") else plan.settings,
        base_url=given["base_url"] or plan.base_url,
        retries=given["retries"] if typed("retries") else plan.retries,
    )


def _default_folder(plan: EvalPlan) -> Path:
    words = f"{Path(plan.target.partition('://')[2] or plan.target).stem}-{plan.model}"
    name = re.sub(r"[^\w.]+", "-", words).strip("-.")
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _played(run: EvalRun, folder: Path, given: Mapping[str, Any]) -> bool:
    """Plays; returns whether the user interrupted it."""
    target = None if as_url(run.plan.target) else roots([run.plan.target])[0]
    # The plan has no secrets, and must stay as it is to be resumed.
    info = replace(RunInfo.gathered({}, target=target), config=run.plan.as_json())

    def opened(name: str, code: Identity) -> RunWriter:
        now = replace(info, environments={name: code} if code != Identity() else {})
        if given["resume"] is None:
            return RunWriter.create(folder, now)
        return _continued(folder, now, changed=given["allow_changed"])

    total = {name: given[f"max_total_{name}"] for name in ("tokens", "cost", "seconds")}
    how = {"retry": given["retry"], "quiet": given["as_json"], "total": EpisodeLimits(**total)}
    try:
        asyncio.run(stopped_by_signals(run.play(opened, given["concurrency"], **how)))
    except RunError as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        text = f"{error.strerror or error}: {shown_path(error.filename or folder)}"
        if not (folder / "run.json").exists():
            raise WrongUsage(text) from None
        raise Unreachable(f"{text}; to continue later: ors eval --resume {shown_path(folder)}") from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        if not run.begun:
            raise KeyboardInterrupt from None
        return True
    return False


def _continued(folder: Path, now: RunInfo, *, changed: bool) -> RunWriter:
    """Opens a run to resume it, and writes into run.json how it goes on."""
    with ExitStack() as stack:
        writer = stack.enter_context(RunWriter.open(folder))
        kept = read_info(folder)
        if (what := kept.changed(now)) and not changed:
            text = f"The environment's {what} changed since this run began, and results of both"
            text += " would be mixed: start a new run, or continue anyway with --allow-changed"
            raise WrongUsage(text)
        writer.describe(kept.resumed(now))
        stack.pop_all()  # the caller closes it
    return writer


def _conclude(run: Run, played: EvalRun, interrupted: bool, given: Mapping[str, Any]) -> None:
    if given["as_json"]:
        print_json(report_json(run))
    else:
        print_report(run, played.plan)
    if interrupted:
        click.echo(f"Interrupted. To continue: ors eval --resume {shown_path(run.folder)}", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    code, why = verdict(run, fail_under=given["fail_under"], max_failed=given["max_failed"])
    if played.stopped:
        code, why = 3, f"{played.stopped}. To continue: ors eval --resume {shown_path(run.folder)}"
    if code:
        click.echo(f"Error: {why}", err=True)
        raise click.exceptions.Exit(code)
