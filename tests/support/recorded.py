"""A server that records its sessions, and the run that it leaves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ors import Environment, Server
from ors.recording import SessionRecorder
from ors.rollouts import EpisodeRecord
from ors.rollouts.records import RunInfo, read_run
from tests.support.live_server import serving
from tests.support.raw_http import Raw

INFO = RunInfo.gathered({"reward": "sum"}, kind="sessions")


@dataclass
class Recorded:
    """A recording server while it runs, and its records when it has ended."""

    url: str
    folder: Path
    server: Server
    raw: Raw = field(init=False)

    def __post_init__(self) -> None:
        self.raw = Raw(self.url)

    def records(self, run: str = ".") -> list[EpisodeRecord]:
        return list(read_run(self.folder / run).episodes())

    def record(self) -> EpisodeRecord:
        (found,) = self.records()
        return found

    def counts(self) -> tuple[int, int]:
        """Records that were written, and that were dropped, as the metrics page says."""
        page = self.raw.get("/-/metrics").body.decode()
        values = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in page.splitlines()}
        written, dropped = (
            float(values[f'ors_records_total{{result="{each}"}}']) for each in ("written", "dropped")
        )
        return int(written), int(dropped)


@contextmanager
def recording(
    folder: Path,
    environments: Sequence[type[Environment]],
    *,
    keep_private: bool = False,
    most_bytes: int = 2**28,
    **options: Any,
) -> Iterator[Recorded]:
    """Serves and records while the block runs."""
    recorder = SessionRecorder(folder, INFO, keep_private=keep_private, most_bytes=most_bytes)
    server = Server(environments, observers=[recorder], **options)
    with serving(server) as url:
        yield Recorded(url, folder, server)
