"""A model on loopback that follows a script, in the dialects of four coding agents."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]
Step = tuple[str, JSON] | str
"""A tool by the end of its name with its arguments, or the text of a last message."""


@dataclass
class Offered:
    """A tool as a request names it."""

    name: str
    namespace: str | None = None


@dataclass
class ScriptedModel:
    """Answers each request with the step that follows the results which it has already."""

    script: Sequence[Step]
    status: int = 200
    """Another one refuses every request."""
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Paths and bodies."""
    keys: set[str] = field(default_factory=set)
    """API keys, and the bearer's."""
    offered: set[str] = field(default_factory=set)
    """Names of all tools that requests have offered."""

    def bodies(self) -> str:
        return "\n".join(body for _, body in self.requests)

    def step(self, results: int, tools: Sequence[Offered]) -> tuple[Offered, JSON] | str:
        """The next step; without tools, as for a title, just text."""
        self.offered |= {each.name for each in tools}
        step = self.script[min(results, len(self.script) - 1)] if tools else "ok"
        if isinstance(step, str):
            return step
        name, given = step
        found = [each for each in tools if each.name.endswith(name)]
        return (found[0], given) if found else f"There is no tool {name}."


def _sse(events: Sequence[tuple[str | None, JSON]], last: str = "") -> bytes:
    lines = ((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events)
    return ("".join(lines) + last).encode()


def _anthropic(model: ScriptedModel, asked: JSON) -> bytes:
    tools = [Offered(tool["name"]) for tool in asked.get("tools", [])]
    parts = [part for message in asked["messages"] for part in message["content"] if isinstance(part, dict)]
    step = model.step(sum(part["type"] == "tool_result" for part in parts), tools)
    usage = {"input_tokens": 10, "output_tokens": 5}
    if isinstance(step, str):
        block: JSON = {"type": "text", "text": ""}
        delta: JSON = {"type": "text_delta", "text": step}
        reason = "end_turn"
    else:
        block = {"type": "tool_use", "id": f"toolu_{len(model.requests)}", "name": step[0].name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step[1])}
        reason = "tool_use"
    message: JSON = {"id": f"msg_{len(model.requests)}", "type": "message", "role": "assistant"}
    message |= {"model": asked["model"], "content": [], "stop_reason": None, "stop_sequence": None}
    if not asked.get("stream"):
        content = {**block, "input": step[1]} if not isinstance(step, str) else {**block, "text": step}
        return json.dumps(message | {"content": [content], "stop_reason": reason, "usage": usage}).encode()
    events: list[JSON] = [
        {"type": "message_start", "message": message | {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]
    return _sse([(event["type"], event) for event in events])


def _responses(model: ScriptedModel, asked: JSON) -> bytes:
    tools = []
    for tool in asked.get("tools", []):
        if tool["type"] == "namespace":
            tools += [Offered(inner["name"], tool["name"]) for inner in tool["tools"]]
        else:
            tools.append(Offered(tool.get("name", tool["type"])))
    results = sum(str(item.get("type")).endswith("call_output") for item in asked["input"])
    step, number = model.step(results, tools), len(model.requests)
    if isinstance(step, str):
        content = [{"type": "output_text", "text": step, "annotations": []}]
        item: JSON = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
    else:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": step[0].name, "arguments": json.dumps(step[1])}
        item |= {"namespace": step[0].namespace} if step[0].namespace else {}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # type: ignore[dict-item]
    begun: JSON = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
    whole = begun | {"status": "completed", "output": [item], "usage": usage}
    events: list[JSON] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return _sse([(event["type"], event) for event in events])


def _chat(model: ScriptedModel, asked: JSON) -> bytes:
    tools = [Offered(tool["function"]["name"]) for tool in asked.get("tools", [])]
    step = model.step(sum(message["role"] == "tool" for message in asked["messages"]), tools)
    message: JSON = {"role": "assistant"}
    if isinstance(step, str):
        message["content"], reason = step, "stop"
    else:
        function = {"name": step[0].name, "arguments": json.dumps(step[1])}
        call = {"index": 0, "id": f"call_{len(model.requests)}", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [call]}
        reason = "tool_calls"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    chunk: JSON = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
    if not asked.get("stream"):
        choice: JSON = {"index": 0, "message": message, "finish_reason": reason}
        whole = chunk | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return json.dumps(whole).encode()
    events = [
        chunk | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        chunk | {"choices": [], "usage": usage},
    ]
    return _sse([(None, event) for event in events], "data: [DONE]\n\n")


def _gemini(model: ScriptedModel, asked: JSON, *, stream: bool) -> bytes:
    declared = (tool.get("functionDeclarations", []) for tool in asked.get("tools", []))
    tools = [Offered(each["name"]) for some in declared for each in some]
    parts = [part for content in asked["contents"] for part in content["parts"]]
    step = model.step(sum("functionResponse" in part for part in parts), tools)
    part: JSON = {"text": step} if isinstance(step, str) else {}
    if not isinstance(step, str):
        part = {"functionCall": {"name": step[0].name, "args": step[1]}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    whole: JSON = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}
    return _sse([(None, whole)]) if stream else json.dumps(whole).encode()


def _answer(model: ScriptedModel, path: str, asked: JSON) -> bytes | None:
    if path.endswith("/messages"):
        return _anthropic(model, asked)
    if path.endswith("/count_tokens"):
        return json.dumps({"input_tokens": 10}).encode()
    if path.endswith(":countTokens"):
        return json.dumps({"totalTokens": 10}).encode()
    if path.endswith("/responses"):
        return _responses(model, asked)
    if path.endswith("/chat/completions"):
        return _chat(model, asked)
    if path.endswith(("enerateContent", ":generateContent")):
        return _gemini(model, asked, stream="stream" in path)
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        model = self.model
        model.requests.append((path, body.decode()))
        model.keys |= _keys(self.headers)
        if model.status != 200:
            error = {"type": "authentication_error", "message": "this key is refused", "code": model.status}
            self._send(model.status, json.dumps({"type": "error", "error": error}).encode())
            return
        answer = _answer(model, path, json.loads(body))
        self._send(404 if answer is None else 200, answer or b"{}")

    def do_GET(self) -> None:
        self._send(404, b"{}")

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        kind = "application/json" if body.startswith(b"{") else "text/event-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _keys(headers: Any) -> set[str]:
    named = [headers.get(name) for name in ("x-api-key", "x-goog-api-key")]
    return {key for key in (*named, (headers.get("Authorization") or "").removeprefix("Bearer ")) if key}


@contextmanager
def scripted_model(script: Sequence[Step], status: int = 200) -> Iterator[ScriptedModel]:
    """Serves while the block runs."""
    model = ScriptedModel(script, status)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model}))
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
