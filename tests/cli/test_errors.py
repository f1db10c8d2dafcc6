"""Whatever ends a command early is one line and an exit code."""

import click
import pytest

from ors.cli.errors import in_one_line
from ors.errors import AuthenticationError, NotFound, ORSError, TransportError

ODD = OSError(28, "No space left on device", "/full/disk")


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (ODD, 1, "No space left on device: /full/disk"),
        (OSError("odd"), 1, "odd"),
        (NotFound("no such session"), 2, "no such session"),
        (AuthenticationError("no key"), 2, "no key (give a key with --api-key or in ORS_API_KEY)"),
        (TransportError("refused"), 3, "refused"),
        (ORSError("\x1b[2Jcleared"), 1, "\\x1b[2Jcleared"),
    ],
)
def test_an_error_becomes_one_line_and_its_exit_code(raised: Exception, code: int, text: str) -> None:
    with pytest.raises(click.ClickException) as told, in_one_line():
        raise raised
    assert (told.value.exit_code, told.value.message) == (code, text)


def test_a_fault_of_our_own_says_where_it_is() -> None:
    with (
        pytest.raises(click.ClickException, match=r"KeyError: 'x' \(.*test_errors\.py:\d+\)$"),
        in_one_line(),
    ):
        raise KeyError("x")


def test_ctrl_c_is_exit_code_130() -> None:
    with pytest.raises(click.exceptions.Exit) as told, in_one_line():
        raise KeyboardInterrupt
    assert told.value.exit_code == 130
