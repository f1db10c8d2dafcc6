"""`ors mcp`: an episode for an agent that plays it over MCP."""

import asyncio
import json
import os
import select
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from secrets import token_urlsafe
from threading import Thread
from typing import Any

import click

from ors.cli.errors import Unreachable, shown_path
from ors.cli.options.shared import WHERE, Command, api_key, environment, secrets, task_choice
from ors.cli.targets.connect import completed_secrets, greet, known_name
from ors.cli.targets.process import served
from ors.cli.targets.resolve import as_url
from ors.client import AsyncORS, AsyncSession
from ors.rollouts import EpisodeRecord, Failed, Rules, TaskRef
from ors.rollouts.agents.coding.seat import OVER, MCPListener, Seat
from ors.rollouts.agents.coding.table import SNIPPETS, written
from ors.rollouts.episodes.episode import session_for
from ors.rollouts.episodes.played import PlayedEpisode
from ors.rollouts.records.files import write_whole
from ors.rollouts.records.line import record_json

STOP_SECONDS = 1.0
"""How long the last answers may take when everything ends: agents kill what does not."""
STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
"""Agents end a server by any of these, and do not close its standard input."""
LONG = ("messages", "tools", "task")
"""Keys of a record that the line on standard error leaves out."""

Answers = SimpleQueue[bytes | None]
"""Lines for standard output; None at the end."""


@click.command(
    cls=Command,
    examples=[
        "ors mcp adder --index 3 --outcome outcome.json",
        "ors mcp http://127.0.0.1:8080 --split test --for claude-code",
    ],
)
@WHERE
@click.option(
    "--for", "agent", type=click.Choice(tuple(SNIPPETS)),
    help="Listen on loopback instead of standard input, and print the URL and the settings for this agent.",
)  # fmt: skip
@click.option(
    "--outcome", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="File for the record of the episode, as JSON.  [default: a line on standard error]",
)  # fmt: skip
@task_choice
@environment
@secrets
@api_key
def mcp(where: str, agent: str | None, outcome: Path | None, **given: Any) -> None:
    """Open an episode for an agent that plays it over MCP.

    Put this command into the settings of an agent as an MCP server: it speaks MCP on standard input and
    output. With --for, it listens on loopback until the episode is over. Agents never see rewards: the
    outcome is written when the episode is over, when the agent leaves, and on SIGINT, SIGTERM and SIGHUP.
    A TARGET is served by a child process.
    """
    if outcome is not None and not outcome.parent.is_dir():
        raise click.BadParameter(f"there is no folder {shown_path(outcome.parent)}", param_hint="'--outcome'")
    with ExitStack() as stack:
        url, key = as_url(where), given["api_key"]
        if local := url is None:
            # An agent with a shell must not open sessions of its own.
            key = given["api_key"] = token_urlsafe()
            url = stack.enter_context(served(where, ORS_API_KEYS=key))
        greet(url, key)
        given["secret"] = completed_secrets(url, key, given["env"], dict(given["secret"]), local=local)
        asyncio.run(_hosted(url, agent, outcome, **given))


async def _hosted(url: str, agent: str | None, outcome: Path | None, **given: Any) -> None:
    async with AsyncORS(url, given["api_key"]) as client:
        env = client.environment(known_name(await client.list_environments(), given["env"]))
        task = TaskRef(env.name, spec=given["task"])
        if given["task"] is None:
            task = TaskRef(env.name, given["split"] or (await env.list_splits())[0], given["index"])
        record = await _Host(session_for(env, task, given["secret"]), agent, outcome).run()
    if isinstance(record.outcome, Failed):
        raise Unreachable(f"The episode failed ({record.outcome.who}): {record.outcome.message}")


class _Host:
    """Plays the episode for the client that comes, and keeps its outcome."""

    _episode: PlayedEpisode

    def __init__(self, session: AsyncSession, agent: str | None, outcome: Path | None) -> None:
        self._session, self._agent, self._outcome = session, agent, outcome
        self._seat = Seat()
        self._record: EpisodeRecord | None = None
        self._over = asyncio.Event()
        """Set when nobody plays on: the client has left, the episode has failed, or by a signal."""

    async def run(self) -> EpisodeRecord:
        """Plays while the client is served; returns the record, which is written by then."""
        playing = asyncio.ensure_future(self._play())
        for number in (getattr(signal, name, None) for name in STOPPING):
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                with suppress(NotImplementedError):  # Windows
                    asyncio.get_running_loop().add_signal_handler(number, self._over.set)
        async with self._pipes() if self._agent is None else self._listening(self._agent):
            await self._over.wait()
            # At once: agents kill what does not end. A call that runs does not count.
            record = self._record or self._written(self._episode.so_far())
            self._seat.close()
        playing.cancel()
        await asyncio.wait([playing])
        return record

    async def _play(self) -> None:
        rules = Rules(reward="sum", agent_name=self._agent or "mcp")
        self._episode = PlayedEpisode(self._session, self._seat, rules)
        record = await self._episode.play()
        self._record = self._written(record)  # before the agent hears that it is over, and ends us
        why = record.outcome.message if isinstance(record.outcome, Failed) else ""
        self._seat.close(why or OVER)
        if why or self._agent is not None:  # a client of standard input may ask on, and ends us itself
            self._over.set()

    def _written(self, record: EpisodeRecord) -> EpisodeRecord:
        value = record_json(record)
        if self._outcome is not None:
            try:
                write_whole(self._outcome, json.dumps(value).encode() + b"\n")  # an agent may kill us
                return record
            except OSError as failed:
                click.echo(f"Error: {failed.strerror}: {shown_path(self._outcome)}", err=True)
        short = {name: found for name, found in value.items() if name not in LONG}
        click.echo(f"Outcome: {json.dumps(short)}", err=True)
        return record

    @asynccontextmanager
    async def _listening(self, agent: str) -> AsyncIterator[None]:
        """Serves the episode on loopback, and says where once it is set up."""
        listener, (file, server) = MCPListener(), SNIPPETS[agent]
        with listener.address(self._seat) as path:
            url = listener.url + path
            text = f"The episode is at {url}\n\nIn {file}:\n{written(server, file, url=url)}"
            saying = asyncio.ensure_future(self._say(text))
            yield
            saying.cancel()
            await listener.close()

    async def _say(self, text: str) -> None:
        await self._seat.begun.wait()  # agents do not wait long for a setup
        if not self._over.is_set():  # as after a setup that failed
            click.echo(text)

    @asynccontextmanager
    async def _pipes(self) -> AsyncIterator[None]:
        """Serves the episode on standard input and output, which are the protocol's: a message in a line."""
        output = os.dup(1)
        os.dup2(2, 1)  # what anybody prints
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        answers: Answers = SimpleQueue()
        loop = asyncio.get_running_loop()
        # Nobody waits long for these threads: a client may neither write nor read.
        Thread(target=self._read_lines, args=(loop, lines, output), daemon=True).start()
        writer = Thread(target=_write_lines, args=(output, answers), daemon=True)
        writer.start()
        answering = asyncio.ensure_future(self._answer_all(lines, answers))
        try:
            yield
        finally:
            lines.put_nowait(b"")
            await asyncio.wait([answering], timeout=STOP_SECONDS)
            answering.cancel()
            answers.put(None)
            writer.join(STOP_SECONDS)

    def _read_lines(self, loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes], output: int) -> None:
        # Not sys.stdin: Python crashes at its end if a thread waits in that buffer.
        with open(0, "rb", closefd=False) as file, suppress(RuntimeError):  # the loop may be closed
            for line in filter(bytes.strip, file):
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")
            if hasattr(select, "poll"):  # not on Windows
                reader = select.poll()
                reader.register(output, 0)
                reader.poll()  # until nobody reads either: no call that runs is for anybody any more
                loop.call_soon_threadsafe(self._over.set)

    async def _answer_all(self, lines: asyncio.Queue[bytes], answers: Answers) -> None:
        try:
            async with asyncio.TaskGroup() as answering:  # a client that has said everything still reads
                while line := await lines.get():
                    answering.create_task(self._answer(line, answers))
        finally:
            self._over.set()

    async def _answer(self, line: bytes, answers: Answers) -> None:
        reply = await self._seat.heard(line)
        if reply.messages is not None:
            async for each in reply.messages:
                answers.put(each or b"")
        answers.put(reply.body)


def _write_lines(output: int, answers: Answers) -> None:
    with suppress(OSError), open(output, "wb") as file:  # the client may be gone
        while (answer := answers.get()) is not None:
            if answer:
                file.write(answer + b"\n")
                file.flush()
