"""Images on a terminal that can show them, or as files."""

import base64
import binascii
import mimetypes
import os
import select
import sys
import tempfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import click

from ors import ImageBlock
from ors.cli.errors import shown_path

Way = Literal["kitty", "iterm", "sixel"]

CHUNK = 4096
"""Most characters of base64 in one command of kitty's protocol."""
WIDEST = 800
"""Pixels of an image in sixels; a wider one is made smaller."""
ANSWER_SECONDS = 0.2
"""Time for a terminal to say what it can do."""


def show_image(block: ImageBlock, folder: Path | None, stem: str, *, err: bool) -> None:
    """Shows an image on the terminal, or saves it and prints its path; with a `folder` it is always saved."""
    try:
        content = base64.b64decode(block.data, validate=True)
    except binascii.Error:
        click.echo(f"[image of type {block.mimeType} is not valid base64]", err=err)
        return
    way = terminal_way(sys.stderr if err else sys.stdout)
    picture = None if way is None else _picture(content, block.mimeType, way)
    if picture is not None:
        click.echo(picture, err=err, color=True)
    if picture is None or folder is not None:
        click.echo(f"[{_saved(content, block.mimeType, folder or _temporary(), stem)}]", err=err)


def terminal_way(stream: Any) -> Way | None:
    """How the terminal of a stream shows images; None if it cannot."""
    names = os.environ
    if not stream.isatty() or names.get("TERM", "").startswith(("screen", "tmux", "dumb")):
        return None
    program = names.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in names or "kitty" in names.get("TERM", "") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm") or names.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return "sixel" if _has_sixels() else None


def _has_sixels() -> bool:
    """Asks the terminal: attribute 4 of its answer stands for sixels."""
    try:
        import termios
        import tty
    except ImportError:  # not a POSIX system
        return False
    number = sys.stdin.fileno() if sys.stdin.isatty() else -1
    if number < 0:
        return False
    before = termios.tcgetattr(number)
    answer = b""
    try:
        tty.setcbreak(number, termios.TCSANOW)
        os.write(number, b"\x1b[c")
        while not answer.endswith(b"c") and select.select([number], [], [], ANSWER_SECONDS)[0]:
            answer += os.read(number, 1)
    except OSError:
        return False
    finally:
        termios.tcsetattr(number, termios.TCSANOW, before)
    return b"4" in answer.removeprefix(b"\x1b[?").removesuffix(b"c").split(b";")[1:]


def _picture(content: bytes, mime: str, way: Way) -> str | None:
    """Characters that show an image; None if it cannot be converted."""
    if way == "iterm":
        data = base64.b64encode(content).decode()
        return f"\x1b]1337;File=inline=1;size={len(content)}:{data}\a"
    if way == "kitty":
        png = content if mime == "image/png" else _converted(content)
        return None if png is None else _kitty(png)
    return _sixels(content)


def _kitty(png: bytes) -> str:
    data = base64.b64encode(png).decode()
    parts = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
    more = [int(number < len(parts)) for number in range(1, len(parts) + 1)]
    first = f"\x1b_Ga=T,f=100,m={more[0]};{parts[0]}\x1b\\"
    return first + "".join(
        f"\x1b_Gm={flag};{part}\x1b\\" for flag, part in zip(more[1:], parts[1:], strict=True)
    )


def _opened(content: bytes) -> Any:
    """The image as PIL reads it; None if PIL is missing, or cannot."""
    try:
        from PIL import Image

        image = Image.open(BytesIO(content))
        image.load()
    except (ImportError, OSError, ValueError, SyntaxError):  # PIL raises SyntaxError for a broken PNG
        return None
    return image


def _converted(content: bytes) -> bytes | None:
    image = _opened(content)
    if image is None:
        return None
    file = BytesIO()
    image.convert("RGBA").save(file, "PNG")
    return file.getvalue()


def _sixels(content: bytes) -> str | None:
    image = _opened(content)
    if image is None:
        return None
    image.thumbnail((WIDEST, WIDEST))
    image = image.convert("RGB").quantize(64)
    width, height = image.size
    palette, pixels = image.getpalette(), image.tobytes()
    used = sorted(set(pixels))
    colours = "".join(
        f"#{number};2;" + ";".join(str(round(value / 2.55)) for value in palette[3 * number : 3 * number + 3])
        for number in used
    )
    rows = [pixels[start : start + width] for start in range(0, width * height, width)]
    bands = "-".join(_band(rows[top : top + 6]) for top in range(0, height, 6))
    return f'\x1bPq"1;1;{width};{height}{colours}{bands}\x1b\\'


def _band(rows: list[bytes]) -> str:
    """Six rows of pixels: for each colour, one character a column, whose bits are the rows."""
    lines = []
    for number in sorted(set(b"".join(rows))):
        bits = [0] * len(rows[0])
        for place, row in enumerate(rows):
            column = row.find(number)
            while column >= 0:
                bits[column] |= 1 << place
                column = row.find(number, column + 1)
        lines.append(f"#{number}" + "".join(chr(63 + value) for value in bits))
    return "$".join(lines)


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
