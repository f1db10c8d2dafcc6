"""The real `ors` command: run to its end, left running, or in a pseudo-terminal."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from ors.cli import ors

ORS = [sys.executable, "-m", "ors"]
PATIENCE = 40
LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
"""Makes a terminal the controlling one of a command. No `preexec_fn`: this process has threads."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def environment_code(name: str, methods: str) -> str:
    """The source of an environment with one task; `methods` are the lines of its class that differ."""
    head = f"from ors import Environment, TextBlock, ToolOutput, tool\n\nclass {name}(Environment):\n"
    prompt = "def get_prompt(self):\n    return [TextBlock(text='Begin.')]"
    return head + textwrap.indent(
        f"tasks = {{'train': [{{}}]}}\n{prompt}\n{textwrap.dedent(methods)}", "    "
    )


def variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: none of our own settings, and what a test adds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORS_", "_ORS"))}
    return {**kept, **(more or {})}


def run(
    *words: str,
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    patience: float = PATIENCE,
) -> Done:
    """Runs a command to its end."""
    done = subprocess.run(
        [*ORS, *words],
        input=stdin,
        cwd=cwd,
        env=variables(env),
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def refused(*words: str) -> Done:
    """Runs a command that is refused before it begins, in this process: a start takes half a second."""
    ours = {name: None for name in os.environ if name.startswith(("ORS_", "_ORS"))}
    done = CliRunner().invoke(ors, words, prog_name="ors", env=ours)
    return Done(done.exit_code, done.stdout, done.stderr)


class Running:
    """A command that goes on, such as a server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def url(self) -> str:
        """The address of a server, once it has printed it."""
        return self.line(r"Serving on (http://\S+)")[1]

    def line(self, pattern: str) -> re.Match[str]:
        """The next line of its output that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended without {pattern!r}: {self.process.communicate()[1]}")

    def errors(self, pattern: str) -> re.Match[str]:
        """The next line of its errors that matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended without {pattern!r}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Done:
        """Tells it to end, and waits until it has."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return Done(self.process.returncode, out, err)


@contextmanager
def running(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = ORS,
) -> Iterator[Running]:
    """A command while the block runs."""
    process = subprocess.Popen(
        [*command, *words],
        cwd=cwd,
        env=variables(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


class Terminal:
    """A command in a pseudo-terminal: type into it, read what it shows."""

    def __init__(self, *words: str, cwd: Path | None = None) -> None:
        self._master, slave = os.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, *ORS, *words],
            cwd=cwd,
            env=variables({"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}),
            stdin=slave,
        )
        os.close(slave)
        self.shown = ""

    def until(self, text: str) -> str:
        """Reads until `text` is shown; gives what was shown up to then."""
        while text not in self.shown:
            assert self._more(), f"it ended without {text!r}: {self.shown}"
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """Reads to the end; gives the exit code and the rest of what was shown."""
        while self._more():
            pass
        os.close(self._master)
        return self._process.wait(PATIENCE), self.shown

    def hang_up(self) -> int:
        """Closes the terminal, as its window does; gives the exit code."""
        os.close(self._master)
        return self._process.wait(PATIENCE)

    def _more(self) -> bool:
        assert select.select([self._master], [], [], PATIENCE)[0], f"nothing is shown any more: {self.shown}"
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self.shown += ESCAPES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
        return bool(data)
