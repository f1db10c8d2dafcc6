"""A server that answers 503, while environments cannot be served."""

from typing import Any

from ors import Blocks, Environment, JSONObject, Server, ToolOutput, tool
from ors.errors import Unavailable
from ors.server.http.answers import Answer, refusal
from ors.server.http.requests import Request
from ors.server.process.runner import Runner


class _Nothing(Environment):
    """Stands for the environments."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["none"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return []

    def get_prompt(self) -> Blocks:
        return []

    @tool
    async def nothing(self) -> ToolOutput:
        """Does nothing."""
        return ToolOutput(blocks=[])


class _Refusals:
    """Answers in the place of peers, after the checks of host, origin and key."""

    def elsewhere(self, request: Request) -> Answer:
        return refusal(Unavailable("The server is not running; its log says why", retry_after=1))

    def new_session_id(self) -> str:
        raise NotImplementedError


def refusing(host: str, port: int, insecure: bool, certificate: dict[str, Any], **how: Any) -> Runner:
    """A server that gives every client that it accepts the same answer. The reason is in its log alone."""
    server = Server([_Nothing], **how)
    server._guard(host, insecure)
    server._app.peers = _Refusals()
    return Runner(server._app, host, port, **certificate)  # without links: a router must not use it
