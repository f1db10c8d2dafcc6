import pytest

from tests.support import waiting
from tests.support.waiting import until, wait_until


async def test_a_wait_in_vain_says_what_it_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    seen: list[int] = []
    with pytest.raises(AssertionError, match=r"in vain for: .*lambda: seen == \[1\]"):
        wait_until(lambda: seen == [1])
    with pytest.raises(AssertionError, match="in vain for: a first one"):
        await until(lambda: seen, "a first one")


async def test_a_wait_ends_when_its_condition_holds() -> None:
    seen: list[int] = []

    async def third() -> bool:
        seen.append(1)
        return len(seen) > 2

    await until(third)
    wait_until(lambda: seen.append(1) or len(seen) > 4)  # type: ignore[func-returns-value]
    assert len(seen) == 5
