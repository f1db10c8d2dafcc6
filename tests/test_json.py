"""JSON, as it is written: what authors put into results and tasks."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ors._json import dumps


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(1.5), b"1.5"),
        (np.float32("nan"), b"null"),
        (np.int64(3), b"3"),
        (np.bool_(True), b"true"),
        (np.str_("word"), b'"word"'),
        (np.array([[1, 2], [3, 4]]), b"[[1,2],[3,4]]"),
        (np.arange(6)[::2], b"[0,2,4]"),
        (np.array(["a", "b"]), b'["a","b"]'),
        ({"deep": [np.uint8(7)]}, b'{"deep":[7]}'),
        ([2**70, np.float64(2)], b"[1180591620717411303424,2.0]"),
    ],
    ids=repr,
)
def test_numbers_and_arrays_of_numpy_are_written_as_what_they_hold(value: Any, text: bytes) -> None:
    assert dumps(value) == text


def test_writing_our_own_models_does_not_load_numpy() -> None:
    code = (
        "import sys\nfrom ors import ToolOutput\nfrom ors._json import dumps\n"
        "dumps(ToolOutput(blocks=[]))\nprint('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
