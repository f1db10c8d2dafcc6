"""Pretends to be Claude Code: plays over MCP, or misbehaves, as the name of its model says."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def ask(method: str, **params: Any) -> Any:
    url = json.loads(Path(option("--mcp-config")).read_text())["mcpServers"]["ors"]["url"]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, body, headers)) as answer:
        text = answer.read().decode()
    return json.loads(text if text.startswith("{") else text.rpartition("data: ")[2])


def call(name: str, **given: Any) -> Any:
    return ask("tools/call", name=name, arguments=given)


def ask_model() -> str:
    """The status of a model that refuses, or is not there."""
    try:
        url = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages?beta=true"
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
        urllib.request.urlopen(urllib.request.Request(url, b"{}", headers)).close()
    except urllib.error.HTTPError as error:
        return f" {error.code}"
    return " 200"


def say(text: str, **more: Any) -> None:
    usage = {"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 7}
    print(json.dumps({"type": "result", "is_error": False, "result": text, "usage": usage, **more}))


def play() -> None:
    ask("initialize", protocolVersion="2025-06-18")
    word = call("hint")["result"]["content"][0]["text"]
    call("submit", answer=word.removeprefix("It is ").removesuffix("."))


def forever() -> None:
    while True:
        time.sleep(3600)


ESCAPED = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(3600)"


def behave(how: str) -> None:
    with suppress(OSError):  # in a sandbox
        Path(sys.argv[0]).with_name("pid").write_text(str(os.getpid()))
    task = sys.stdin.read()
    if how == "plays":
        play()
        say("All done.")
    elif how == "works":
        shutil.copy("wanted.txt", "word.txt")
        call("submit")
        say(os.environ["ANTHROPIC_API_KEY"] + ask_model())
    elif how == "answers":
        say("It is 4.")
    elif how == "hands-in":
        shown = call("grade", message="4")
        say(json.dumps([tool["name"] for tool in ask("tools/list")["result"]["tools"]] + [shown]))
    elif how == "tells-its-task":
        say(task)
    elif how == "exits-1":
        print(f"something broke, and the key is {os.environ['ANTHROPIC_API_KEY']}", file=sys.stderr)
        sys.exit(1)
    elif how == "loses-its-model":
        say("API Error: 401 refused", is_error=True, api_error_status=401)
        sys.exit(1)
    elif how == "hangs":
        forever()
    elif how == "hangs-in-a-call":
        call("wait")
    elif how == "ignores-sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        forever()
    elif how == "forks":
        child = subprocess.Popen([sys.executable, "-c", ESCAPED], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        print(child.stdout.readline(), end="", flush=True)
        play()
        say("All done.")
    elif how == "shows-variables":
        here = {"folder": os.listdir(), "variables": sorted(os.environ)}
        say(json.dumps({**here, "words": sys.argv}))
    elif how == "prints-endlessly":
        while True:
            os.write(1, b"y\n" * 4096)


if __name__ == "__main__":
    behave(option("--model"))
