"""The description of an environment: for programs, the inspector, and the card in its README."""

import asyncio
from email.utils import getaddresses
from importlib.metadata import Distribution
from typing import Any

from ors._authoring.declared import described as described_parameters
from ors._identity import package_of
from ors.errors import ORSError
from ors.server.episodes.environments import ServedEnvironment
from ors.types import Split

LICENCES = "License :: "


def listed(environment: ServedEnvironment) -> dict[str, Any]:
    """What is known at once."""
    return {
        "name": environment.name,
        "description": environment.description,
        "splits": environment.splits,
        "tools": environment.tools.tools,
        "task_tools": environment.task_tools,
        "terminal_tool": environment.tools.terminal_tool,
        "required_secrets": environment.required_secrets,
        "reward_range": environment.rewards.range,
        "reward_components": environment.rewards.components,
    }


async def described(environment: ServedEnvironment, *, counts: bool) -> dict[str, Any]:
    """All of it. Counting tasks may take long: with `counts` unset, no number of tasks is given."""
    splits = [_split(environment, each, counts) for each in environment.splits]
    read, *counted = await asyncio.gather(environment.in_thread(_read, environment), *splits)
    return {**listed(environment), "splits": counted, **read}


def _read(environment: ServedEnvironment) -> dict[str, Any]:
    package, parameters = package_of(environment.cls), described_parameters(environment.cls)
    return {
        "version": environment.identity.version,
        "hash": environment.identity.hash,
        "license": None if package is None else _licence(package),
        "authors": [] if package is None else _authors(package),
        "needs": _needs(environment.cls),
        **({} if parameters is None else {"parameters": parameters}),
    }


async def _split(environment: ServedEnvironment, split: Split, counts: bool) -> dict[str, Any]:
    found: dict[str, Any] = split.model_dump()
    if counts:
        try:
            found["num_tasks"] = await environment.num_tasks(split.name)
        except ORSError:  # the rest is still true
            found["num_tasks"] = None
    return found


def _licence(package: Distribution) -> str | None:
    """The licence in the metadata of a package: its expression, else its first line, else its classifier."""
    told = package.metadata
    texts = [*told.get_all("License-Expression", []), *told.get_all("License", [])]
    texts += [each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if LICENCES in each]
    return next((line for text in texts for line in text.splitlines()[:1]), None)


def _authors(package: Distribution) -> list[str]:
    told = package.metadata
    emails = [name or address for name, address in getaddresses(told.get_all("Author-email", []))]
    return list(dict.fromkeys([*told.get_all("Author", []), *emails]))


def _needs(cls: Any) -> dict[str, Any]:
    """What an episode needs; without a sandbox, the rest is not known."""
    from ors.sandbox import SandboxSpec  # late: most servers have no sandbox

    given = getattr(cls, "sandbox", None)
    spec = getattr(given, "spec", given)  # that of a pool
    if not isinstance(spec, SandboxSpec):
        return {"sandbox": False, "network": None, "memory": None}
    return {"sandbox": True, "network": spec.network == "host", "memory": spec.memory}
