"""What the load generator sends, and what it expects back."""

from dataclasses import dataclass, replace
from typing import Literal

NUMBER = "10000000"
"""What stands for `{n}` where every request is the same; as long as the load generator's numbers."""

Phase = Literal["setup", "loop", "end"]


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `ends`: an event stream with an `end` event; `least`: bytes of body at the least."""

    phase: Phase
    method: str
    path: str
    body: str = ""
    expected: str = ""
    ends: bool = False
    least: int = 0
    takes_sid: bool = False

    def line(self) -> str:
        """The step as the load generator reads it."""
        flags = (int(self.ends), self.least, int(self.takes_sid))
        return "\t".join(map(str, (self.phase, self.method, self.path, self.body, self.expected, *flags)))

    def canned(self) -> "Step":
        """The same request, whoever sends it and whenever."""
        return replace(
            self,
            body=self.body.replace("{n}", NUMBER),
            expected=self.expected.replace("{n}", NUMBER).replace("{sid}", ""),
        )


Plan = tuple[Step, ...]


def _call(tool: str, given: str, expected: str, least: int = 0) -> Step:
    body = f'{{"name":"{tool}","input":{given}}}'
    return Step("loop", "POST", "/bench/call", body, expected, ends=True, least=least)


def _big(kilobytes: int) -> Step:
    return _call("big", f'{{"kilobytes":{kilobytes}}}', '"ok":true', least=kilobytes * 1024)


SUBMIT = _call("submit", '{"answer":"{n}"}', "You answered {n}.")
SUBMIT_SYNC = _call("submit_sync", '{"answer":"{n}"}', "You answered {n}.")
BIG_64 = _big(64)
BIG_1024 = _big(1024)
SLOW = _call("slow", "{}", "slept")
PING = Step("loop", "POST", "/ping", "{}", '"status":"ok"')

OPEN = (
    Step("setup", "POST", "/create_session", "{}", ends=True, takes_sid=True),
    Step("setup", "POST", "/create", '{"env_name":"bench","split":"train","index":1}', "{sid}"),
    Step("setup", "GET", "/bench/prompt", expected="What is"),
)
_CLOSE = Step("end", "POST", "/delete", "{}", "{sid}")


def calls(step: Step) -> Plan:
    """A session for each connection, and one call after the other in it."""
    return (*OPEN[:2], step, _CLOSE)


def crowd(step: Step) -> Plan:
    """One call in each of many sessions, which end with their server."""
    return calls(step)[:-1]


def episodes() -> Plan:
    """Whole episodes, one after the other: a session, its prompt, one call, its end."""
    return tuple(replace(step, phase="loop") for step in (*OPEN, SUBMIT, _CLOSE))


def sessions(*, with_call: bool) -> Plan:
    """New sessions that stay open, with or without a call in each."""
    steps = (*OPEN, SUBMIT) if with_call else OPEN
    return tuple(replace(step, phase="loop") for step in steps)


def canned() -> list[Step]:
    """Every request that the floor is asked, in an order that a server can answer."""
    health = Step("setup", "GET", "/health")
    return [step.canned() for step in (health, *OPEN, SUBMIT, SUBMIT_SYNC, BIG_64, BIG_1024, _CLOSE)]
