"""What may become of a request."""

from collections.abc import Callable, Coroutine
from typing import Any

from ors.server.answers import Answer
from ors.server.calls import Call
from ors.server.feeds import Feed
from ors.server.offers import Offer
from ors.server.relay import Relay, Switch
from ors.server.requests import Request

__all__ = ["Handler", "Later", "Outcome"]

Later = Coroutine[Any, Any, Answer]
Outcome = Answer | Later | Call | Feed | Relay | Switch
"""The answer, or what will give it, or whose stream it is, or from where it comes."""
Handler = Callable[[Request, Offer], Outcome]
