"""The outcome of a call, in one word."""

from tests.support.raw_http import Answer


def outcome(answer: Answer) -> str:
    """ "ok" if it ran to its end, else what was said instead."""
    if answer.status != 200:
        return f"status {answer.status}"
    name, data = answer.events()[-1]
    return "ok" if name == "end" and answer.result()["ok"] else f"{name}: {data}"
