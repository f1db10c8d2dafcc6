"""Values of the flags of `ors eval`."""

from pathlib import Path

import pytest
from click import BadParameter

from ors.cli.options.evaluation import NUMBER, TEXT


def test_a_text_may_be_the_text_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("Be brief: Grüße.", encoding="utf-8")
    assert TEXT.convert(f"@{file}", None, None) == "Be brief: Grüße."
    assert TEXT.convert("Be brief.", None, None) == "Be brief."
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(BadParameter, match="is not a text file"):
        TEXT.convert(f"@{file}", None, None)
    with pytest.raises(BadParameter, match="No such file"):
        TEXT.convert(f"@{tmp_path / 'none'}", None, None)


def test_a_number_is_finite() -> None:
    assert NUMBER.convert("-0.5", None, None) == -0.5
    for value in ("nan", "inf"):
        with pytest.raises(BadParameter, match=f"{value} is not a finite number"):
            NUMBER.convert(value, None, None)
