"""Saves images, for people at a terminal."""

import base64
import binascii
import mimetypes
import tempfile
from functools import cache
from pathlib import Path

import click

from ors import ImageBlock
from ors.cli.errors import shown_path


def save_image(block: ImageBlock, folder: Path | None, stem: str, *, err: bool) -> None:
    """Saves an image, by default in a temporary folder, and prints its path."""
    try:
        content = base64.b64decode(block.data, validate=True)
    except binascii.Error:
        click.echo(f"[image of type {block.mimeType} is not valid base64]", err=err)
        return
    click.echo(f"[{_saved(content, block.mimeType, folder or _temporary(), stem)}]", err=err)


@cache
def _temporary() -> Path:
    """Folder for the images of this process, which stays."""
    return Path(tempfile.mkdtemp(prefix="ors-images-"))


def _saved(content: bytes, mime: str, folder: Path, stem: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    ending = mimetypes.guess_extension(mime) or ".bin"
    for count in range(1, 1_000_000):
        path = folder / f"{stem}-{count}{ending}"
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return f"image saved to {shown_path(path)}"
    return f"image not saved: {folder} has too many images"
