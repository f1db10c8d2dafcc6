"""AsyncSession: one episode, from its start to its end."""

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ors import _protocol
from ors._protocol import CALL, PING, PROMPT, SESSION_ID, TASK_TOOLS, TOOLS, Endpoint
from ors.client.requests.decode import HasTools, SessionScore, Task, blocks, field, terminal_tool, tool_output
from ors.client.requests.keepalive import Interruptible
from ors.client.sessions.call import CallAddress, PendingCall
from ors.client.sessions.create import (
    Ahead,
    Ending,
    checked_sid,
    create,
    delete,
    delete_later,
    forked,
    new_sid,
    task_body,
)
from ors.client.sessions.transcript import Transcript
from ors.client.transports.base import Bound
from ors.client.transports.multiplexed import OnTaskId
from ors.errors import Gone, NotFound, ORSError, SessionLost, ToolCallError, TransportError
from ors.providers import Provider
from ors.types import Blocks, JSONObject, TerminalToolSpec, ToolOutput, ToolSpec

if TYPE_CHECKING:
    from ors.client.sessions.environment import AsyncEnvironment

T = TypeVar("T")


class AsyncSession(HasTools, Bound):
    """One episode. `async with` opens and ends it; so do `start()` and `close()`, which waits for the end.

    With `sid` it is attached to a session that was started before; leaving `async with` does not end it.
    """

    def __init__(
        self,
        env: "AsyncEnvironment",
        task: Task | None = None,
        secrets: Mapping[str, str] | None = None,
        api_key: str | None = None,
        split: str | None = None,
        index: int | None = None,
        *,
        sid: str | None = None,
    ) -> None:
        if (split is None) != (index is None):
            raise ValueError("split and index must both be provided together")
        if [task is not None, split is not None, sid is not None].count(True) != 1:
            raise ValueError("Provide either task or both split and index, not both/neither")
        self.env = env
        self.task = task
        self.split, self.index = split, index
        self.sid = sid
        self.kept = False
        self.due = self.heard = 0.0
        self.misses = 0
        self._attached = sid is not None
        self._lost: tuple[str, str | None] | None = None  # message and reason
        self._pending: set[Interruptible] = set()
        self._terminal: tuple[TerminalToolSpec | None] | None = None  # once the server has been asked
        self._secrets = dict(secrets or {})
        self._remote = env.client
        self._transcript = Transcript() if env.client.options.keep_messages else None
        self._environment = (task.environment_name if task is not None else "") or env.name
        self._ahead = Ahead(self._remote.usual[self._environment])
        self._call_path = self._remote.path(CALL, self._environment)
        self._headers = self._remote.headers(api_key)
        if sid is not None:
            self._set_sid(sid)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._environment} sid={self.sid}>"

    async def start(self) -> Self:
        """Opens the session, and pings it from now on.

        Raises:
            ResponseError: the server refused.
            TransportError: it was not reached.
            SessionLost: the attached session does not exist.
        """
        if self.kept:
            return self
        if self.sid is None:
            headers = {**self._headers, SESSION_ID: await new_sid(self._remote, self._headers)}
            self._ahead.begin(self._remote, self._environment, headers)
            given = task_body(self._environment, self.task, self.split, self.index)
            await create(self._remote, headers, given, self._secrets)
            self._set_sid(headers[SESSION_ID])
        else:
            await self._remote.retry().run(self.ping)
        self._keep_alive()
        return self

    def _keep_alive(self) -> None:
        self.heard = asyncio.get_running_loop().time()
        self.kept = True
        self._remote.keepalive.keep(self)

    async def close(self) -> None:
        """Ends the session on the server. One that cannot be deleted is logged, and expires there."""
        if self._ends():
            try:
                await delete(self._remote, self._headers)
            except asyncio.CancelledError:
                delete_later(self._remote, self._headers)
                raise

    def _abandon(self) -> None:
        """Ends the session as leaving `async with` does, without waiting for it."""
        if not self._attached:
            self._end()

    def _end(self, ending: Ending | None = None) -> None:
        """Ends the session as `close` does, without waiting for it."""
        if self._ends():
            delete_later(self._remote, self._headers, ending)

    def _ends(self) -> bool:
        self._ahead.end()
        self.kept, is_open = False, self.sid is not None and self._lost is None
        if is_open:
            self._lost = ("closed by this client", None)
        return is_open

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *raised: object) -> None:
        if self._attached:
            self.kept = False
        elif any(raised):  # such as Ctrl-C: the process may end at once
            await self.close()
        else:
            await self._leave()

    async def _leave(self, ending: Ending | None = None) -> None:
        """Ends the session as `close` does. Over a link, that is in `ending` instead of waited for."""
        if self._remote.link(self._headers) is None:
            await self.close()
        else:
            self._end(ending)
            await asyncio.sleep(0)  # until the request has left

    async def ping(self) -> None:
        """Asks the server once whether the session exists, which also keeps it alive.

        Raises:
            SessionLost: it does not.
            TransportError: the server was not reached.
        """
        try:
            await self._remote.exchange(PING.method, PING.path(), self._headers_if_open(), None)
        except (NotFound, Gone) as error:
            raise self._over(str(error), error.reason) from None
        self.heard = asyncio.get_running_loop().time()

    async def get_prompt(self) -> Blocks:
        """The prompt of the task. Waits for the environment's setup.

        Raises:
            SessionLost, ResponseError, TransportError: the server refused, or was not reached.
        """
        prompt = blocks(await self._ask(PROMPT))
        if self._transcript is not None:
            self._transcript.prompt = prompt
        return prompt

    async def mcp_url(self) -> str:
        """The URL at which MCP clients play this session; it reveals neither its id nor its rewards.

        Raises:
            NotFound: the server has no MCP. Otherwise as `get_prompt`.
        """
        return self._remote.base_url.rstrip("/") + str(field(await self._ask(_protocol.MCP), "path", str))

    async def score(self) -> SessionScore:
        """The rewards of all calls of this session so far, including those over MCP. Raises as `mcp_url`."""
        told, kinds = await self._ask(_protocol.SCORE), (int, list, bool, bool)
        return SessionScore(*map(partial(field, told), SessionScore._fields, kinds))

    def _forget_messages(self) -> None:
        """Keeps nothing for `messages()`, as with `Options(keep_messages=False)`."""
        self._transcript = None

    async def messages(self, format: Provider) -> list[dict[str, Any]]:
        """The prompt, and each call made through this object with its result, as messages for `format`.

        Refused calls are among them, calls without a result are not. Calls that ran at the same time are
        of one reply. Text and reasoning of the model are unknown here: for a loop that sends them back,
        use `convert_prompt` and `convert_results`.

        Raises:
            RuntimeError: `Options(keep_messages=False)`.
            ValueError: `format` is unknown.
            SessionLost, ResponseError, TransportError: the prompt had to be fetched.
        """
        if self._transcript is None:
            raise RuntimeError(
                "messages() has nothing to return: the client was made with Options(keep_messages=False)"
            )
        if self._transcript.prompt is None:
            await self.get_prompt()
        return self._transcript.messages(format)

    async def _tools(self) -> Any:
        try:
            answer = await self._ask(TASK_TOOLS)
        except NotFound:
            # ors-sdk 0.1.0: older servers have no /task_tools.
            answer = await self._ask(TOOLS)
        self._terminal = (terminal_tool(answer),)
        return answer

    async def _shared_tools(self, *, terminal: bool) -> tuple[ToolSpec, ...]:
        """The tools as of `list_tools`, which sessions with the same tools share: nobody may change them."""
        return self._remote.shared_tools(self._environment, await self._tools(), terminal=terminal)

    async def terminal_tool(self) -> TerminalToolSpec | None:
        """The `@terminal` tool, which takes the agent's last message; None if there is none. Asked for once.

        Raises:
            SessionLost, ResponseError, TransportError: the server refused, or was not reached.
        """
        if self._terminal is None:
            await self._tools()
        assert self._terminal is not None
        return self._terminal[0]

    async def call_terminal_tool(
        self, message: str = "", *, on_task_id: OnTaskId | None = None
    ) -> ToolOutput:
        """Calls the `@terminal` tool with the agent's last message, or with nothing if it takes nothing.

        Raises:
            ToolCallError: there is none (`reason` is "not_found"). Otherwise as `call_tool`.
        """
        found = await self.terminal_tool()
        if found is None:
            text = f"The environment {self._environment!r} has no @terminal tool; check terminal_tool() first"
            raise ToolCallError(text, reason="not_found")
        given = {} if found.arg is None else {found.arg: message}
        asked = {"name": found.name, "input": given}
        return await self._call(asked, on_task_id, said=message)

    async def call_tool(
        self,
        tool_name: str,
        input: JSONObject = {},  # noqa: B006 - never changed, and the signature of ors-sdk 0.1.0
        *,
        on_task_id: OnTaskId | None = None,
        call_id: str | None = None,
    ) -> ToolOutput:
        """Calls a tool; returns its output. The tool runs at most once, even if the connection breaks.

        `on_task_id` gets the call's id as soon as the server sends it. With that and `sid`, another process
        can `rejoin` the call. `call_id` is the model provider's id of the call, for `messages()`; without
        it, the ids there are call_1, call_2 and so on.

        Raises:
            ToolCallError: the call was refused; tell the model.
            ToolFailed: the tool raised.
            SessionLost: the session is gone.
            CallOutcomeUnknown: the tool may or may not have run.
            TransportError: the server was not reached, and has not seen the call.
        """
        return await self._call({"name": tool_name, "input": input}, on_task_id, call_id)

    async def rejoin(self, task_id: str) -> ToolOutput:
        """Waits for the result of a call that this process or another one started before.

        Raises:
            CallOutcomeUnknown: the server no longer has its result. Otherwise as `call_tool`.
        """
        return await self._call({"name": "", "input": {}, "task_id": task_id}, kept=False)

    async def fork(self, n: int) -> "list[AsyncSession]":
        """`n` new sessions that continue from the state of this one, open and pinged. Waits like a call.

        Each has its own copy of the environment, and is closed on its own. Only `ors` servers can do it.

        Raises:
            BadRequest: the episode has finished, or `n` is not valid.
            NotFound: the server cannot fork.
            ServerFailed: the environment cannot be copied; the message says why.
            Unavailable: the server has no place for them.
            SessionLost: this session is gone.
            TransportError: the server was not reached.
        """
        return await forked(self, n)

    def lose(self, message: str, reason: str | None = None) -> None:
        """Makes all pending and later requests of the session raise `SessionLost`."""
        self.kept = False
        error = self._over(message, reason)
        for pending in tuple(self._pending):
            pending.interrupt(error)

    async def _call(
        self,
        asked: dict[str, Any],
        on_task_id: OnTaskId | None = None,
        call_id: str | None = None,
        said: str | None = None,
        *,
        kept: bool = True,
    ) -> ToolOutput:
        if self._lost is not None or not self.kept:
            await self._opened_headers()
        if not self._ahead.is_over:
            self._ahead.end()
        call = PendingCall(self._calls, asked, on_task_id)
        self._pending.add(call)
        transcript = self._transcript if kept else None
        place = 0 if transcript is None else transcript.begin()
        try:
            result = await call.result()
        except SessionLost as error:
            raise self._over(str(error), error.reason) from None
        except (NotFound, Gone) as error:
            raise await self._diagnosed(error) from None
        finally:
            self._pending.discard(call)
            if transcript is not None:
                transcript.running -= 1
        self.heard = call.loop.time()
        if transcript is None:
            return tool_output(result)
        return transcript.read(place, call.body, call_id, said, result)

    async def _ask(self, endpoint: Endpoint) -> Any:
        headers = await self._opened_headers()
        seconds, ahead = self._remote.options.setup_seconds, self._ahead.take(endpoint)
        asked = self._remote.ask(endpoint, self._environment, headers=headers, seconds=seconds, ahead=ahead)
        try:
            return await self._until_lost(asked)
        except (NotFound, Gone) as error:
            raise await self._diagnosed(error) from None

    async def _until_lost(self, asked: Awaitable[T]) -> T:
        """Waits for an answer of the server, unless the session is lost meanwhile."""
        pending = Interruptible()
        self._pending.add(pending)
        try:
            with pending:
                answer = await asked
        finally:
            self._pending.discard(pending)
        self.heard = asyncio.get_running_loop().time()
        return answer

    async def _diagnosed(self, error: NotFound | Gone) -> ORSError:
        # 404 means no such session or no such path: a ping tells which.
        if isinstance(error, Gone):
            return self._over(str(error), error.reason)
        try:
            # Retried: a connection to a killed server breaks only when it is used again.
            await self._remote.retry().run(self.ping)
        except SessionLost as lost:
            return lost
        except TransportError:
            return error
        return error

    def _over(self, message: str, reason: str | None) -> SessionLost:
        self.kept = False
        self._lost = self._lost or (message, reason)
        return SessionLost(message, sid=self.sid, reason=reason)

    async def _opened_headers(self) -> dict[str, str]:
        headers = self._headers_if_open()
        if self._attached and not self.kept:
            await self.start()  # pinged from its first use on; shows whether the server honours keys
        return headers

    def _headers_if_open(self) -> dict[str, str]:
        if self._lost is not None:
            message, reason = self._lost
            raise SessionLost(message, sid=self.sid, reason=reason)
        if self.sid is None:
            raise RuntimeError("the session is not open: use it as a context manager, or start() it")
        return self._headers

    def _set_sid(self, sid: str) -> None:
        self.sid = checked_sid(sid)
        self._headers = {**self._headers, SESSION_ID: sid}
        self._calls = CallAddress(self._remote, self._call_path, self._headers)
