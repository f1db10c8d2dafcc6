"""Validation errors as text."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, model_validator

from ors._json import problems


class Form(BaseModel):
    name: str = ""
    sizes: list[int] = []

    @model_validator(mode="after")
    def check(self) -> "Form":
        if self.name == "bad":
            raise ValueError("this name is taken")
        return self


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"sizes": [1, "secret"]},
            "sizes.1: Input should be a valid integer, unable to parse string as an integer",
        ),
        ({"name": "bad"}, "form: this name is taken"),
        ("secret", "form: Input should be a valid dictionary or instance of Form"),
    ],
)
def test_each_problem_has_its_place_and_never_the_value(given: Any, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(given)
    assert problems(caught.value, root="form") == text


def test_without_a_name_of_the_whole_only_the_message_is_left() -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate({"name": "bad"})
    assert problems(caught.value) == "this name is taken"
