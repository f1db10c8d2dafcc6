"""Child processes of `ors serve`: how they are started, and the hidden flags that they are given."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ors.cli.options.shared import Flags, add_flags
from ors.cli.settings import erase_secrets
from ors.cluster.local import WorkerConfig
from ors.server.process.lifeline import LIFELINE, Lifeline

LISTENER = "ORS_SERVE_FD"
"""Environment variable with the descriptor of the socket to serve on."""
DOWN = "ORS_SERVE_DOWN"
"""Environment variable that says that the environments cannot be served."""
FLAGS: Flags = (
    ("--fd", {"type": int, "hidden": True, "help": "Serve on this inherited socket."}),
    ("--down", {"is_flag": True, "hidden": True, "help": "Only answer 503."}),
    ("--lifeline", {"type": int, "hidden": True, "help": "End when the other end of this pipe closes."}),
    (
        "--worker-config",
        {"type": WorkerConfig.read, "hidden": True, "help": "Serve as one of several workers."},
    ),
)
inherited_flags = add_flags("Inherited", FLAGS)


def started(
    variables: Mapping[str, str], descriptors: Sequence[int], keys: Sequence[str], stdout: int | None = None
) -> "subprocess.Popen[bytes]":
    """Runs this command once more, as a child that `Inherited` belongs to.

    Not by `os.fork`: other threads may hold locks, for which a copy would wait for ever. The API keys go
    through a pipe: programs that a tool starts could read them in the environment.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "ors", *sys.argv[1:]],
        env={**os.environ, **variables},
        pass_fds=descriptors,
        stdin=subprocess.PIPE,
        stdout=stdout,
        process_group=0,  # Ctrl-C reaches it through its parent: twice would mean "stop now"
    )
    assert child.stdin is not None
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write("\n".join(keys).encode())
    return child


@dataclass
class Inherited:
    """Values of the flags, and what they name."""

    fd: int | None
    down: bool
    lifeline: int | None
    worker_config: WorkerConfig | None
    listener: socket.socket | None = field(default=None, init=False)
    line: Lifeline | None = field(default=None, init=False)
    keys: list[str] = field(default_factory=list, init=False)
    """The API keys of the parent's command line or environment."""

    @property
    def is_child(self) -> bool:
        """Whether a supervisor has started this process: that of workers, or that of `--reload`."""
        return self.fd is not None or self.worker_config is not None

    def take(self) -> None:
        """Takes over what was inherited, before environment code can pass it to its own children."""
        from ors.cluster.local import take

        erase_secrets()
        for name in (LISTENER, DOWN, LIFELINE):
            os.environ.pop(name, None)
        if self.is_child:
            self.keys = _read_keys()
        if self.worker_config is not None:
            self.line = take(self.worker_config)
            return
        if self.lifeline is not None:
            self.line = Lifeline(self.lifeline)
        if self.fd is not None:
            os.set_inheritable(self.fd, False)
            self.listener = socket.socket(fileno=self.fd)


def _read_keys() -> list[str]:
    with open(0, encoding="utf-8", closefd=False) as pipe:
        keys = pipe.read().split("\n")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return [key for key in keys if key]
