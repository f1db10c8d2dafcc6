"""An episode by a package's own client, told as JSON: `python their_episode.py <package> <url>`."""

import importlib
import json
import sys
from typing import Any


def client(package: str, url: str) -> Any:
    if package == "openreward":
        # Both of its URLs are in environment variables.
        return importlib.import_module("openreward").OpenReward(api_key="key")
    return importlib.import_module("ors.client").ORS(base_url=url, api_key="key")


def caught(session: Any, name: str, given: Any) -> list[str]:
    try:
        session.call_tool(name, given)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def played(env: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "splits": env.list_splits(),
        "tasks": len(env.list_tasks("train")),
        "num_tasks": env.num_tasks("test"),
        "task": dict(env.get_task("train", 3).task_spec),
        "range": [dict(task.task_spec)["start"] for task in env.get_task_range("train", -2)],
        "tools": [tool.name for tool in env.list_tools()],
    }
    long = "ä\u2028 x" * 3000
    with env.session(task=env.get_task("train", 3), secrets={"OPENAI_API_KEY": "sk-1"}) as session:
        found["prompt"] = session.get_prompt()[0].text
        found["session_tools"] = [tool.name for tool in session.list_tools()]
        found["openai"] = len(session.list_tools(format="openai"))
        found["said"] = session.call_tool("say", {"text": long}).blocks[0].text == long
        found["secret"] = session.call_tool("whisper", {}).blocks[0].text
        found["unknown"] = caught(session, "nope", {})
        found["invalid"] = caught(session, "add", {"value": "x"})
        found["first"] = session.call_tool("add", {"value": 1}).reward
        last = session.call_tool("add", {"value": 6})
        found["last"] = [last.reward, last.finished, dict(last.metadata), last.blocks[0].text]
    with env.session(split="test", index=2) as session:
        found["by_index"] = session.get_prompt()[0].text
        # Last: openreward 0.1.167 gives a session up when a tool has raised.
        found["dropped"] = caught(session, "drop", {})
    return found


if __name__ == "__main__":
    held = client(sys.argv[1], sys.argv[2])  # ors-sdk 0.1.0 closes a client that nobody holds
    print(json.dumps(played(held.environments.get("abacus"))))
