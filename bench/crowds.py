"""Many sessions and many calls at once: what a session weighs, and how long slow calls take."""

from bench import load, machine, plans
from bench.figures import Figures
from bench.servers import Subject, running

WARM_SESSIONS = 200
_BOTH: tuple[Subject, ...] = ("ours", "reference")


def measure_memory(figures: Figures, sessions: int) -> None:
    """What `sessions` new sessions add to a fresh server's memory, without and with a call in each."""
    for row, with_call in (("memory_idle", False), ("memory_called", True)):
        print(f"  {row}", flush=True)
        for subject in _BOTH:
            with running(subject) as (server,):
                plan = plans.sessions(with_call=with_call)
                load.run(server, plan, 16, count=WARM_SESSIONS)
                before = machine.resident_bytes(server.pid)
                load.run(server, plan, 16, seconds=250, count=sessions)
                added = machine.resident_bytes(server.pid) - before
                figures.add(row, subject, added / sessions)


def measure_slow_calls(figures: Figures, crowds: tuple[int, ...], rounds: int) -> None:
    """How long a crowd of two-second calls takes until the last one is answered."""
    for crowd in crowds:
        print(f"  slow_{crowd}", flush=True)
        with running(*_BOTH) as servers:
            for _ in range(rounds):
                for server in servers:
                    sample = load.run(server, plans.crowd(plans.SLOW), crowd, count=crowd)
                    figures.add(f"slow_{crowd}", server.subject, sample.seconds, sample.noise)
