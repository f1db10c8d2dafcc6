"""Validation errors as text, without the values, which may be secrets."""

from pydantic import ValidationError

_ARRAY = "('json-or-python["
"""Beginning of pydantic's name for a JSON array, in a tuple."""


def problems(error: ValidationError, root: str = "") -> str:
    """Lists the invalid fields and what is wrong with each; `root` is the name of the whole value."""
    wrong = error.errors(include_url=False, include_context=False, include_input=False)
    # A value that is no JSON fits none of its kinds, and pydantic names each of them.
    values = {problem["loc"][:-1] for problem in wrong if str(problem["loc"][-1:]).startswith(_ARRAY)}
    found: dict[str, None] = {}
    for problem in wrong:
        place, text = problem["loc"], problem["msg"].removeprefix("Value error, ")
        if place[:-1] in values:
            place, text = place[:-1], "JSON cannot express this value"
        where = ".".join(map(str, place)) or root
        found[f"{where}: {text}" if where else text] = None
    return "; ".join(found)
