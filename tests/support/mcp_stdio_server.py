"""An MCP server on standard streams, written by hand, which can also misbehave. Run as a program."""

import json
import os
import subprocess
import sys
import time
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = {
    "echo": ("Says it again.", TEXT),
    "count": ("Counts the calls of this process.", NONE),
    "picture": ("Shows a pixel.", NONE),
    "refuse": ("Refuses.", NONE),
    "wrong_input": ("Complains about its input.", NONE),
    "crash_inside": ("Answers with an internal error.", NONE),
    "resources": ("Shows resources.", NONE),
    "structured": ("Has structured content alone.", NONE),
    "variables": ("Shows its variables, folder and pid.", NONE),
    "large": ("Gives 5 MB.", NONE),
    "die": ("Ends the process.", NONE),
    "hang": ("Never answers.", NONE),
    "garbage": ("Prints something else.", NONE),
    "flood": ("Fills standard error.", NONE),
    "asks": ("Asks the client first.", NONE),
    "family": ("Starts processes that outlive it.", NONE),
    "no_result": ("Answers without a result.", NONE),
    "odd_content": ("Answers with content that is none.", NONE),
}


class Server:
    """Answers one line after the other; `mode` says in which way it is odd."""

    def __init__(self, mode: str) -> None:
        self.mode, self.calls = mode, 0

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def take(self, message: dict[str, Any]) -> None:
        if "id" not in message or "method" not in message:
            return
        method = message["method"].replace("/", "_")
        if self.mode == "modern" and method == "initialize":
            self.send(id=message["id"], error={"code": -32601, "message": "no such method"})
            return
        if self.mode == "modern":
            assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        answer = getattr(self, method, None)
        if answer is None:
            self.send(id=message["id"], error={"code": -32601, "message": "no such method"})
            return
        value = answer(message.get("params") or {})
        self.send(id=message["id"], **(value if "error" in value else {"result": value}))

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        revision = "1999-01-01" if self.mode == "unknown-revision" else params["protocolVersion"]
        info = {"name": "hand", "version": "1"}
        return {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}

    def server_discover(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}

    def tools_list(self, params: dict[str, Any]) -> dict[str, Any]:
        names = list(TOOLS)
        if self.mode == "bad-tools":
            return {"tools": [{"name": 5}]}
        if self.mode == "endless":
            return {"tools": [], "nextCursor": "again"}
        at = int(params.get("cursor", 0))
        page = [
            {"name": name, "description": TOOLS[name][0], "inputSchema": TOOLS[name][1]}
            for name in names[at : at + 7]
        ]
        return {"tools": page, **({"nextCursor": str(at + 7)} if at + 7 < len(names) else {})}

    def tools_call(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        result: dict[str, Any] = getattr(self, f"on_{params['name']}")(**params["arguments"])
        return result

    def on_echo(self, text: str) -> dict[str, Any]:
        return said(text)

    def on_count(self) -> dict[str, Any]:
        return said(str(self.calls))

    def on_picture(self) -> dict[str, Any]:
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}

    def on_refuse(self) -> dict[str, Any]:
        return {**said("not today"), "isError": True}

    def on_wrong_input(self) -> dict[str, Any]:
        return {"error": {"code": -32602, "message": "the input is wrong"}}

    def on_crash_inside(self) -> dict[str, Any]:
        return {"error": {"code": -32603, "message": "it broke inside"}}

    def on_resources(self) -> dict[str, Any]:
        inner = {"uri": "file:///a", "mimeType": "text/plain", "text": "inside"}
        picture = {"uri": "file:///b", "mimeType": "image/png", "blob": PIXEL}
        link = {"type": "resource_link", "uri": "file:///c", "name": "c"}
        sound = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
        return {
            "content": [
                {"type": "resource", "resource": inner},
                {"type": "resource", "resource": picture},
                link,
                sound,
            ]
        }

    def on_structured(self) -> dict[str, Any]:
        return {"content": [], "structuredContent": {"rows": [1, 2]}}

    def on_variables(self) -> dict[str, Any]:
        return said(json.dumps({**os.environ, "folder": os.getcwd(), "pid": os.getpid()}))

    def on_large(self) -> dict[str, Any]:
        return said("x" * 5_000_000)

    def on_die(self) -> dict[str, Any]:
        sys.stderr.write("first line\nout of cheese\n")
        sys.stderr.flush()
        os._exit(3)

    def on_hang(self) -> dict[str, Any]:
        while True:
            time.sleep(3600)

    def on_garbage(self) -> dict[str, Any]:
        sys.stdout.write("Traceback: oh no\n")
        sys.stdout.flush()
        return said("too late")

    def on_flood(self) -> dict[str, Any]:
        for number in range(300_000):
            sys.stderr.write(f"line {number} of a very long log\n")
        sys.stderr.flush()
        return said("still here")

    def on_asks(self) -> dict[str, Any]:
        self.send(method="notifications/message", params={"data": "hello"})
        self.send(id="p", method="ping")
        self.send(id="s", method="sampling/createMessage", params={})
        answers = [json.loads(sys.stdin.readline()) for _ in range(2)]
        return said(json.dumps(answers))

    def on_family(self) -> dict[str, Any]:
        """A child that ignores signals in the same session, and one in a session of its own."""
        code = "import signal,time\nfor n in (1,2,15): signal.signal(n, signal.SIG_IGN)\nprint(flush=True)\n"
        pids = []
        for alone in (False, True):
            words = [sys.executable, "-c", f"{code}time.sleep(600)"]
            child = subprocess.Popen(words, start_new_session=alone, stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            pids.append(child.pid)
        return said(json.dumps([os.getpid(), *pids]))

    def on_no_result(self) -> dict[str, Any]:
        self.send(id="other", result={})
        sys.stdout.write("{}\n")
        return {"error": None}

    def on_odd_content(self) -> dict[str, Any]:
        return {"content": [{"type": "text"}]}


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "broken":
        sys.exit("cannot find my settings")
    if mode == "mute":
        time.sleep(3600)
    server = Server(mode)
    for line in sys.stdin:
        server.take(json.loads(line))
    if mode == "stays":  # though its input was closed
        time.sleep(3600)


if __name__ == "__main__":
    main()
