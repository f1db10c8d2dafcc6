"""The examination of an environment, from its splits to what it leaves behind."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from ors import Environment, Server
from ors.client import AsyncORS, Options
from ors.errors import ServerFailed
from ors.quality import episodes, leftovers, listings, tools
from ors.quality.findings import Report
from ors.quality.serving import while_serving
from ors.quality.subject import Plan, Subject

Step = Callable[[Subject], Awaitable[None]]

PATIENCE = Options(retries=2, connect_seconds=5)
"""A person waits: a server that is not there is said to be so at once."""

STEPS: dict[str, Step] = {
    "splits and tasks": listings.examine,
    "tools": tools.examine,
    "episodes": episodes.examine,
    "gold solution": episodes.examine_gold,
    "leftovers and memory": leftovers.examine,
}


def examine(
    *,
    url: str | None = None,
    classes: Mapping[str, type[Environment]] | None = None,
    environment: str | None = None,
    api_key: str | None = None,
    plan: Plan | None = None,
    on_step: Callable[[str, str], None] | None = None,
) -> list[Report]:
    """Examines the environments of a server, or classes, which are served for it in this process.

    `classes` are by their name on the wire; they are examined for leftovers too. `on_step` is told the
    environment and what is being looked at.

    Raises:
        TransportError: the server is not there. ServerFailed: it has no environments.
        ValueError: it has no environment of that name.
    """
    if (url is None) == (classes is None):
        raise ValueError("give either the URL of a server, or classes")

    def work(where: str) -> list[Report]:
        return asyncio.run(_examine(where, classes or {}, environment, api_key, plan or Plan(), on_step))

    return work(url) if url is not None else while_serving(Server(list((classes or {}).values())), work)


async def _examine(
    url: str,
    classes: Mapping[str, type[Environment]],
    environment: str | None,
    api_key: str | None,
    plan: Plan,
    on_step: Callable[[str, str], None] | None,
) -> list[Report]:
    reports = []
    async with AsyncORS(url, api_key, options=PATIENCE) as client:
        names = await client.list_environments()
        if not names:
            raise ServerFailed("the server has no environments")
        if environment is not None:
            if environment.lower() not in [name.lower() for name in names]:
                raise ValueError(f"there is no environment {environment!r}; there is {', '.join(names)}")
            names = [environment.lower()]
        for name in names:
            report = Report(name)
            subject = Subject(client.environment(name), plan, report, classes.get(name))
            for what, step in STEPS.items():
                if on_step is not None:
                    on_step(name, what)
                await step(subject)
            reports.append(report)
    return reports
