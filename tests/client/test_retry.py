"""How often a request is repeated."""

import pytest

from ors.client import Options
from ors.client.requests.retry import Retry
from ors.client.transports.base import Broken, NotSent
from ors.errors import TransportError, Unavailable

QUICK = Options(backoff_seconds=0.0001, backoff_limit_seconds=0.0001)


async def pauses(retry: Retry, error: TransportError, most: int = 10) -> int:
    for count in range(most):
        try:
            await retry.pause(error)
        except TransportError:
            return count
    return most


@pytest.mark.parametrize("error", [NotSent("x"), Broken("x"), Unavailable("x")])
async def test_failures_are_counted(error: TransportError) -> None:
    assert await pauses(Retry(QUICK, limit=3, seconds=60), error) == 3


async def test_a_full_server_that_says_when_to_come_back_uses_up_no_attempt() -> None:
    retry = Retry(QUICK, limit=1, seconds=60)
    assert await pauses(retry, Unavailable("full", retry_after=0, reason="limit")) == 10
    assert await pauses(retry, Unavailable("full", retry_after=0)) == 1


async def test_a_pause_that_would_pass_the_deadline_is_not_begun() -> None:
    retry = Retry(QUICK, limit=3, seconds=60)
    assert await pauses(retry, Unavailable("later", retry_after=61, reason="limit")) == 0


async def test_the_last_error_is_a_transport_error_without_internals() -> None:
    retry = Retry(QUICK, limit=0, seconds=60)
    with pytest.raises(TransportError, match=r"^cut$") as caught:
        await retry.pause(Broken("cut"))
    assert type(caught.value) is TransportError
