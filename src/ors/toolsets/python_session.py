"""The program behind the tool `python`: runs pieces of code in one namespace. It runs inside the sandbox.

A request is a line of JSON: a mark, code, and a folder for figures. The last line of an answer has the mark
and, as JSON, the figures that were drawn.
"""

import ast
import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    """Answers requests until standard input ends."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    for count, line in enumerate(requests, 1):
        mark, code, folder = json.loads(line)
        figures: list[str] = []
        try:
            run(code, f"<call {count}>", space)
            figures = drawn(folder, count)
        except SystemExit as end:
            sys.stdout.write(f"SystemExit: {end.code}\n")
        except BaseException as error:
            tell(error)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, f"\n{mark} {json.dumps(figures)}\n".encode())


def run(code: str, name: str, space: dict[str, Any]) -> None:
    """Runs code; the value of a last expression is printed, as in an interactive Python."""
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
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.write("".join(traceback.format_exception(type(error), error, trace)))


def drawn(folder: str, count: int) -> list[str]:
    """Saves the figures that matplotlib has open, and closes them."""
    plots: Any = sys.modules.get("matplotlib.pyplot")
    paths = []
    for number in plots.get_fignums() if plots else []:
        path = f"{folder}/figure-{count}-{number}.png"
        plots.figure(number).savefig(path)
        paths.append(path)
    if plots:
        plots.close("all")
    return paths


if __name__ == "__main__":
    main()
