"""Images as bytes of a file, with their type."""

import os
import re
import struct
import sys
import zlib
from io import BytesIO
from typing import Any

TAKEN = "a PIL image, an array, a path, or the bytes of a PNG, JPEG, WebP or GIF file"
LONGEST_PATH = 4096
_PNG_MODES = {"1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"}
_KINDS = re.compile(
    rb"(?P<png>\x89PNG\r\n\x1a\n)|(?P<jpeg>\xff\xd8\xff)|(?P<gif>GIF8[79]a)|(?P<webp>RIFF(?s:....)WEBP)"
)
_PNG_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}  # by the number of channels


def encoded(source: Any) -> tuple[bytes, str]:
    """Bytes of an image file and their MIME type. Raises ValueError, TypeError, OSError: it is no image."""
    if isinstance(source, bytes | bytearray):
        return bytes(source), _mime(bytes(source), "this")
    if isinstance(source, str | os.PathLike):
        return _of_file(os.fspath(source))
    if (pil := sys.modules.get("PIL.Image")) and isinstance(source, pil.Image):
        return _of_pil(source), "image/png"
    return _of_array(source), "image/png"


def _of_file(path: str) -> tuple[bytes, str]:
    if path.startswith(("data:", "http://", "https://")) or len(path) > LONGEST_PATH:
        how = "for base64 write ImageBlock(data=..., mimeType=...)"
        raise ValueError(f"ImageBlock.of takes {TAKEN}, not a URL or base64 text ({path[:40]}…); {how}")
    with open(path, "rb") as file:
        content = file.read()
    return content, _mime(content, path)


def _mime(content: bytes, what: str) -> str:
    found = _KINDS.match(content)
    if found and found.lastgroup:
        return f"image/{found.lastgroup}"
    begin = f"starts with {content[:8]!r}" if content else "is empty"
    raise ValueError(f"{what} is not a PNG, JPEG, WebP or GIF: {begin}")


def _of_pil(image: Any) -> bytes:
    file = BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(file, "PNG")
    return file.getvalue()


def _of_array(source: Any) -> bytes:
    try:
        # A tensor has no buffer of its own, but becomes a NumPy array.
        view = memoryview(source.__array__() if hasattr(source, "__array__") else source)
    except TypeError:
        raise TypeError(f"ImageBlock.of takes {TAKEN}, not {type(source).__name__}") from None
    shape = tuple(view.shape or ())
    height, width, channels = (*shape, 1)[:3] if len(shape) in (2, 3) else (0, 0, 0)
    if channels not in _PNG_COLOURS or not height or not width:
        raise ValueError(f"an image array is height x width, or height x width x 1 to 4, not {shape}")
    if view.format not in ("B", "?"):
        kind = getattr(source, "dtype", view.format)
        how = "convert it with astype('uint8')"
        raise ValueError(f"an image array holds uint8 from 0 to 255, not {kind}: {how}")
    pixels = view.tobytes()
    return _png(pixels.translate(_BLACK_AND_WHITE) if view.format == "?" else pixels, width, channels)


_BLACK_AND_WHITE = bytes([0] + [255] * 255)


def _png(pixels: bytes, width: int, channels: int) -> bytes:
    row = width * channels
    lines = b"".join(b"\0" + pixels[start : start + row] for start in range(0, len(pixels), row))
    head = struct.pack(">IIBBBBB", width, len(pixels) // row, 8, _PNG_COLOURS[channels], 0, 0, 0)
    parts = (_chunk(b"IHDR", head), _chunk(b"IDAT", zlib.compress(lines)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
