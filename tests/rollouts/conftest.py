from collections.abc import AsyncIterator, Callable

import pytest

from ors.client import AsyncEnvironment, AsyncORS, AsyncSession, Task
from tests.support.raw_http import Raw

Opening = Callable[..., AsyncSession]


@pytest.fixture
async def lab(raw: Raw) -> AsyncIterator[AsyncEnvironment]:
    """The environment whose tools do what their names say, on a real socket."""
    async with AsyncORS(raw.url) as client:
        yield client.environment("lab")


@pytest.fixture
def session(lab: AsyncEnvironment, request: pytest.FixtureRequest) -> Opening:
    """Makes sessions whose task has the test's name as its id."""
    return lambda **spec: lab.session(Task("lab", {"id": request.node.name, **spec}))
