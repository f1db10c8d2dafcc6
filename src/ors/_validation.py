"""Validation errors as text, without the values, which may be secrets."""

from pydantic import ValidationError


def problems(error: ValidationError, root: str = "") -> str:
    """Lists the invalid fields and what is wrong with each; `root` is the name of the whole value."""
    found = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, problem["loc"])) or root
        text = problem["msg"].removeprefix("Value error, ")
        found.append(f"{where}: {text}" if where else text)
    return "; ".join(found)
