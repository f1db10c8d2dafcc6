"""Prints tables, JSON and blocks."""

import base64
import binascii
import itertools
import json
import mimetypes
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, assert_never

import click

from ors import ImageBlock, TextBlock, ToolOutput
from ors._rewards import REWARD_COMPONENTS
from ors.cli.errors import clean, report_stream, shown_path
from ors.types import Block

LONGEST_CELL = 160


def number(value: float | None) -> str:
    """Formats a number for people: 1,000,000 and 0.5, or a dash for None."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def shortened(value: Any, longest: int = LONGEST_CELL) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def print_json(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # A lone surrogate cannot be printed; its escape is the same JSON.
    click.echo(text.encode(errors="backslashreplace").decode(), file=report_stream())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [columns, *([clean(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def print_blocks(blocks: Iterable[Block], folder: Path | None, stem: str, *, err: bool = False) -> None:
    """Prints text blocks, and saves images in `folder`, by default a temporary one."""
    for block in blocks:
        match block:
            case TextBlock():
                click.echo(clean(block.text), err=err)
            case ImageBlock():
                save_image(block, folder, stem, err=err)
            case _:
                assert_never(block)


def reward_text(reward: float | None, components: Mapping[str, float]) -> str:
    """A reward with its named parts: "1.2 (correct 1, format 0.2)"."""
    parts = ", ".join(f"{clean(name)} {number(value)}" for name, value in components.items())
    return number(reward) + (f" ({shortened(parts, 200)})" if parts else "")


def print_outcome(output: ToolOutput, *, err: bool = False) -> None:
    if metadata := {key: value for key, value in (output.metadata or {}).items() if key != REWARD_COMPONENTS}:
        say(f"metadata: {shortened(metadata, 1000)}", err=err, dim=True)
    if output.reward is not None:
        colour = "green" if output.reward > 0 else "red" if output.reward < 0 else "yellow"
        say(f"reward: {reward_text(output.reward, output.rewards)}", err=err, fg=colour)
    if output.finished:
        say("finished", err=err, bold=True)


def say(text: str, *, err: bool = False, **style: Any) -> None:
    colour = False if os.environ.get("NO_COLOR") else None
    click.echo(click.style(clean(text), **style), err=err, color=colour)


def save_image(block: ImageBlock, folder: Path | None, stem: str, *, err: bool) -> None:
    """Saves an image, by default in a temporary folder, and prints its path."""
    try:
        content = base64.b64decode(block.data, validate=True)
    except binascii.Error:
        click.echo(f"[image of type {block.mimeType} is not valid base64]", err=err)
        return
    folder = folder or _temporary()
    folder.mkdir(parents=True, exist_ok=True)
    ending = mimetypes.guess_extension(block.mimeType) or ".bin"
    paths = (folder / f"{stem}-{count}{ending}" for count in itertools.count(1))
    path = next(path for path in paths if not path.exists())
    path.write_bytes(content)
    click.echo(f"[image saved to {shown_path(path)}]", err=err)


@cache
def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="ors-images-"))
