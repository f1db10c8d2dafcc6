"""The clients of adapters."""

import pytest

from ors.adapters.common.clients import shared_client, shared_sync_client
from ors.client import ORS

URL = "http://127.0.0.1:9"


def test_all_sync_code_of_a_process_shares_a_client() -> None:
    assert shared_sync_client(URL) is shared_sync_client(URL)
    assert isinstance(shared_sync_client(URL), ORS)


async def test_sessions_keep_no_messages_that_nobody_reads() -> None:
    session = shared_client(URL).environment("any").session(split="train", index=0)
    with pytest.raises(RuntimeError, match="keep_messages=False"):
        await session.messages("openai")


def test_nor_do_those_of_sync_code() -> None:
    session = shared_sync_client(URL).environment("any").session(split="train", index=0)
    with pytest.raises(RuntimeError, match="keep_messages=False"):
        session.messages("openai")
