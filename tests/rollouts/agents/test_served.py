"""Episodes of the model at an address, as trainers with a gateway of their own play them."""

import pytest

from ors.rollouts import Failed, Scored
from ors.rollouts.agents import play_model
from tests.rollouts.conftest import Opening
from tests.support.model_provider import ChatAnswers, providing
from tests.support.scripted_server import answer

pytestmark = pytest.mark.xdist_group("providers")

CHAT = ChatAnswers()


async def test_a_model_at_an_address_plays_an_episode(session: Opening) -> None:
    won = CHAT(calls=[("call_1", "reward", '{"value": 1.0, "finished": true}')])
    async with providing(CHAT) as provider:
        provider.on(CHAT.path, answer(won))
        record = await play_model(
            session(), provider.url + CHAT.prefix, "policy", options={"temperature": 1.0}, reward="last"
        )
        assert provider.body()["model"] == "policy"
        assert provider.body()["temperature"] == 1.0
    assert (record.outcome, record.reward) == (Scored(), 1.0)


async def test_a_model_that_cannot_be_reached_is_a_failure_of_the_model(session: Opening) -> None:
    record = await play_model(
        session(), "http://127.0.0.1:9/v1", "policy", options={"retries": 0}, reward="last"
    )
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.who, record.reward) == ("model", None)
