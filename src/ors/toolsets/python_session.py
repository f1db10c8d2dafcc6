"""The program behind the tool `python`: runs pieces of code in one namespace. It runs inside the sandbox.

A request is a line of JSON: its number, code, and a pattern for the paths of figures. At the end of each the
program reports, on the descriptor that it was given as number 3, that number and how many figures there are.
"""

import sys

# Until all modules that are needed here are loaded: the folder may have others of those names.
if sys.path and not sys.path[0]:
    del sys.path[0]

import ast
import json
import linecache
import os
import traceback
from types import ModuleType
from typing import Any


def main() -> None:
    requests, report = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.dup(3)
    os.close(3)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    space, own = namespace(), os.getpid()
    for count, line in enumerate(requests, 1):
        number, code, figure = json.loads(line)
        figures = 0
        try:
            run(code, f"<call {count}>", space)
            figures = drawn(figure)
        except SystemExit as end:
            sys.stdout.write(f"SystemExit: {end.code}\n")
        except BaseException as error:
            tell(error)
        sys.stdout.flush()
        sys.stderr.flush()
        if os.getpid() != own:
            os._exit(0)  # the code has called fork(), and this is the child
        os.write(report, f"{number} {figures}\n".encode())


def namespace() -> dict[str, Any]:
    """The names of a new module `__main__`, where pickle finds what the code defines."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.path.insert(0, "")
    if sys.version_info >= (3, 14):
        import multiprocessing

        multiprocessing.set_start_method("fork")  # others would look for a file with the code
    return main.__dict__


def run(code: str, name: str, space: dict[str, Any]) -> None:
    """Runs code; the value of a last expression is printed, as in an interactive Python."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), space)
        if value is not None:
            space["_"] = value
            sys.stdout.write(repr(value) + "\n")


def tell(error: BaseException) -> None:
    """Prints an exception without the frames of this program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == main.__code__.co_filename:
        trace = trace.tb_next
    sys.stdout.write("".join(traceback.format_exception(type(error), error, trace)))


def drawn(figure: str) -> int:
    """Saves the figures that matplotlib has open, and closes them; returns their number."""
    plots: Any = sys.modules.get("matplotlib.pyplot")
    numbers = plots.get_fignums() if plots else []
    for at, each in enumerate(numbers):
        plots.figure(each).savefig(figure % at)
    if plots:
        plots.close("all")
    return len(numbers)


if __name__ == "__main__":
    main()
