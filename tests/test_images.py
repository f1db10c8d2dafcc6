"""ImageBlock.of: images as their authors have them."""

import array
import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from ors import ImageBlock


def opened(block: ImageBlock) -> Any:
    return Image.open(BytesIO(base64.b64decode(block.data)))


def saved(kind: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (3, 2), (255, 0, 0)).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_bytes_and_files_of_images_keep_their_format(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(saved(kind))
    for source in (saved(kind), bytearray(saved(kind)), path, str(path)):
        block = ImageBlock.of(source)
        assert block.mimeType == f"image/{kind.lower()}"
        assert base64.b64decode(block.data) == saved(kind)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "F", "HSV"])
def test_every_mode_of_pil_becomes_a_png(mode: str) -> None:
    block = ImageBlock.of(Image.new("RGB", (3, 2), (255, 0, 0)).convert(mode))
    assert (block.mimeType, opened(block).size) == ("image/png", (3, 2))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 2), (2, 3, 3), (2, 3, 4)])
def test_arrays_become_pngs_with_the_same_pixels(shape: tuple[int, ...]) -> None:
    pixels = numpy.arange(numpy.prod(shape), dtype=numpy.uint8).reshape(shape)
    for source in (pixels, numpy.asfortranarray(pixels), pixels[::-1][::-1]):
        read = numpy.asarray(opened(ImageBlock.of(source, detail={"turn": 1})))
        assert (read.reshape(shape) == pixels).all()


def test_a_mask_is_black_and_white() -> None:
    read = numpy.asarray(opened(ImageBlock.of(numpy.array([[True, False]]))))
    assert read.tolist() == [[255, 0]]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (b"<svg/>", "this is not a PNG, JPEG, WebP or GIF: starts with b'<svg/>'"),
        (b"", "is empty"),
        ("data:image/png;base64,AAAA", "for base64 write ImageBlock"),
        (numpy.zeros((2, 2)), "holds uint8 from 0 to 255, not float64"),
        (numpy.zeros((3, 2, 7), numpy.uint8), r"not \(3, 2, 7\)"),
        (numpy.zeros((0, 2), numpy.uint8), r"not \(0, 2\)"),
        (array.array("B", [1, 2]), r"not \(2,\)"),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(source: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ImageBlock.of(source)


def test_other_types_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"takes a PIL image, an array, a path, .* not dict"):
        ImageBlock.of({})
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ImageBlock.of(tmp_path / "nowhere.png")
