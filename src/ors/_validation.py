"""What is wrong with a value that failed validation, without the value itself."""

from pydantic import ValidationError


def problems(error: ValidationError, root: str = "") -> str:
    """The fields and what is wrong with each. `root` names the value as a whole."""
    found = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(map(str, problem["loc"])) or root
        text = problem["msg"].removeprefix("Value error, ")
        found.append(f"{where}: {text}" if where else text)
    return "; ".join(found)
