"""Hidden flags of `ors serve`, for a process that another one has started."""

import os
import socket
from dataclasses import dataclass, field

from ors.cli.options.shared import Flags, add_flags
from ors.cli.reload import FAILURE, LISTENER
from ors.cluster.local import WorkerConfig
from ors.server.process.lifeline import LIFELINE, Lifeline

FLAGS: Flags = (
    ("--fd", {"type": int, "hidden": True, "help": "Serve on this inherited socket."}),
    ("--lifeline", {"type": int, "hidden": True, "help": "End when the other end of this pipe closes."}),
    ("--failure", {"type": int, "hidden": True, "help": "Write why it cannot start to this pipe."}),
    (
        "--worker-config",
        {"type": WorkerConfig.read, "hidden": True, "help": "Serve as one of several workers."},
    ),
)
inherited_flags = add_flags("Inherited", FLAGS)


@dataclass
class Inherited:
    """Values of the flags, and what they name."""

    fd: int | None
    lifeline: int | None
    failure: int | None
    worker_config: WorkerConfig | None
    listener: socket.socket | None = field(default=None, init=False)
    line: Lifeline | None = field(default=None, init=False)

    @property
    def is_child(self) -> bool:
        """Whether a supervisor has started this process: that of workers, or that of `--reload`."""
        return self.fd is not None or self.worker_config is not None

    def take(self) -> None:
        """Takes over inherited descriptors before environment code can pass them to its own children."""
        from ors.cluster.local import take

        for name in (LISTENER, FAILURE, LIFELINE):
            os.environ.pop(name, None)
        if self.failure is not None:
            os.set_inheritable(self.failure, False)
        if self.worker_config is not None:
            self.line = take(self.worker_config)
            return
        if self.lifeline is not None:
            self.line = Lifeline(self.lifeline)
        if self.fd is not None:
            os.set_inheritable(self.fd, False)
            self.listener = socket.socket(fileno=self.fd)
