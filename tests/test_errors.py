import inspect
import pickle

import pytest

from ors import errors
from ors.errors import ORSError, ToolCallError

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, ORSError)]


def test_the_tree_is_pictured_and_listed_whole() -> None:
    assert sorted(cls.__name__ for cls in ALL) == errors.__all__
    assert errors.__doc__ is not None
    assert [cls.__name__ for cls in ALL if cls.__name__ not in errors.__doc__] == []


@pytest.mark.parametrize("cls", ALL)
def test_every_error_pickles_with_its_attributes(cls: type[ORSError]) -> None:
    error = cls("what happened")
    error.note = 7  # type: ignore[attr-defined]
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert str(back) == "what happened"
    assert back.__dict__ == error.__dict__


def test_an_errors_own_attributes_survive_pickling() -> None:
    back = pickle.loads(pickle.dumps(ToolCallError("no", reason="input_validation")))
    assert (str(back), back.reason) == ("no", "input_validation")
    late = pickle.loads(pickle.dumps(errors.Unavailable("later", retry_after=3.0, status=429)))
    assert (late.retry_after, late.status) == (3.0, 429)


@pytest.mark.parametrize("cls", ALL)
def test_every_error_says_its_status_and_whose_failure_it_is(cls: type[ORSError]) -> None:
    assert 200 <= cls.status < 600
    assert cls.who in ("client", "environment", "server", "network")
    assert cls.__doc__
