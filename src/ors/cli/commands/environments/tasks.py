"""`ors tasks`: the tasks of a split, page by page, or one task."""

from typing import Any

import click

from ors.cli.errors import WrongUsage, clean
from ors.cli.options.shared import WHERE, Command, api_key, as_json, environment
from ors.cli.output.printing import number, print_json, print_table, shortened
from ors.cli.targets.connect import chosen, connected
from ors.client import Environment

MOST_COLUMNS = 5


@click.command(
    cls=Command,
    examples=["ors tasks adder --split test --page 2", "ors tasks http://127.0.0.1:8080 --index 3"],
)
@WHERE
@environment
@click.option("--split", metavar="NAME", help="Split to list.  [default: the first]")
@click.option("--page", type=click.IntRange(min=1), default=1, show_default=True, help="Page to show.")
@click.option(
    "--page-size", type=click.IntRange(min=1), default=20, show_default=True, help="Tasks per page."
)
@click.option("--index", type=click.IntRange(min=0), help="Show this task in full.")
@api_key
@as_json
def tasks(
    where: str,
    env: str | None,
    split: str | None,
    page: int,
    page_size: int,
    index: int | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """List the tasks of a split, or show one."""
    with connected(where, api_key) as client:
        source = chosen(client, env)
        split = split or source.list_splits()[0]
        if index is not None:
            print_json(source.get_task(split, index).task_spec)
            return
        listed = _page(source, split, page, page_size)
    if as_json:
        print_json(listed)
    else:
        _print_page(listed, page, page_size)


def _page(env: Environment, split: str, page: int, size: int) -> dict[str, Any]:
    total = env.num_tasks(split)
    start = (page - 1) * size
    if start and start >= total:
        raise WrongUsage(f"There is no page {page}: {split} has {number(total)} tasks, {size} per page")
    found = env.get_task_range(split, start, min(start + size, total))
    listed = [{"index": start + n, "task_spec": task.task_spec} for n, task in enumerate(found)]
    return {"environment": env.name, "split": split, "num_tasks": total, "tasks": listed}


def _print_page(listed: dict[str, Any], page: int, size: int) -> None:
    specs = [(str(task["index"]), task["task_spec"]) for task in listed["tasks"]]
    keys = list(dict.fromkeys(key for _, spec in specs for key in spec))
    if len(keys) <= MOST_COLUMNS:
        rows = [
            (index, *(shortened(spec[key]) if key in spec else "" for key in keys)) for index, spec in specs
        ]
        print_table(("INDEX", *(clean(key) for key in keys)), rows)
    else:
        print_table(("INDEX", "TASK"), [(index, shortened(spec)) for index, spec in specs])
    pages = max(1, -(-listed["num_tasks"] // size))
    click.echo(
        f"\nPage {page} of {number(pages)}; {listed['split']} has {number(listed['num_tasks'])} tasks."
    )
