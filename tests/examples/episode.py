"""One episode of an example, played over HTTP."""

from typing import Any

from tests.support.raw_http import Raw


class Episode:
    """A session of one task, named by its split and index."""

    def __init__(self, raw: Raw, env: str, split: str, index: int) -> None:
        self.raw, self.env = raw, env
        self.sid = raw.post("/create_session").json()["sid"]
        task = {"env_name": env, "split": split, "index": index}
        created = raw.post("/create", task, sid=self.sid)
        assert created.status == 200, created

    def prompt(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = self.raw.get(f"/{self.env}/prompt", sid=self.sid).json()
        return blocks

    def tools(self) -> dict[str, Any]:
        listed = self.raw.get(f"/{self.env}/task_tools", sid=self.sid).json()["tools"]
        return {tool["name"]: tool["input_schema"] for tool in listed}

    def call(self, name: str, **given: Any) -> dict[str, Any]:
        """The output of a call that succeeds."""
        result = self._result(name, given)
        assert result["ok"], result
        output: dict[str, Any] = result["output"]
        return output

    def refused(self, name: str, **given: Any) -> dict[str, Any]:
        """The result of a call that the agent may correct."""
        result = self._result(name, given)
        assert not result["ok"], result
        return result

    def _result(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = self.raw.call(self.sid, name, given, env=self.env).result()
        return result


def text(output: dict[str, Any]) -> str:
    """The first block of an output, which is text."""
    found: str = output["blocks"][0]["text"]
    return found
