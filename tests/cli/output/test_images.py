"""Images on real pseudo-terminals, read back as a terminal reads them."""

import base64
import os
import re
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ors import ImageBlock
from ors.cli.output.images import show_image

PIXELS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0), (255, 0, 0), (0, 0, 255)]
"""One column of seven: more than a band of sixels has."""


def block(kind: str) -> ImageBlock:
    image = Image.new("RGB", (2, len(PIXELS)))
    image.putdata([pixel for pixel in PIXELS for _ in range(2)])
    file = BytesIO()
    image.save(file, kind)
    return ImageBlock.of(file.getvalue())


class Screen:
    """The end of a terminal that a person sees."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.master, slave = os.openpty()
        self.stream = os.fdopen(slave, "r+b", buffering=0)
        self.text = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while b"END" not in self.text:
            self.text += os.read(self.master, 65536)
            if b"\x1b[c" in self.text:
                self.text = self.text.replace(b"\x1b[c", b"")
                os.write(self.master, self._answer)

    def close(self) -> str:
        self.stream.write(b"END")
        self._reader.join()
        self.stream.close()
        os.close(self.master)
        return self.text.removesuffix(b"END").decode()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def show(
        image: ImageBlock, folder: Path | None = None, answer: bytes = b"\x1b[?62;22c", **variables: str
    ) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        screen = Screen(answer)
        number = screen.stream.fileno()
        with (
            open(os.dup(number), "w") as out,
            open(os.dup(number)) as typed,
            monkeypatch.context() as streams,
        ):
            streams.setattr("sys.stdout", out)
            streams.setattr("sys.stdin", typed)
            show_image(image, folder, "picture", err=False)
        return screen.close()

    return show


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_kitty_gets_a_png_in_pieces(shown: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.cli.output.images.CHUNK", 40)
    text = shown(block(kind), TERM="xterm-kitty")
    parts = re.findall(r"\x1b_G(?:a=T,f=100,)?m=([01]);([^\x1b]*)\x1b\\", text)
    assert len(parts) > 2
    assert [more for more, _ in parts] == ["1"] * (len(parts) - 1) + ["0"]
    image = Image.open(BytesIO(base64.b64decode("".join(part for _, part in parts))))
    assert (image.format, image.size) == ("PNG", (2, 7))


def test_iterm_gets_the_file_as_it_is(shown: Any) -> None:
    image = block("JPEG")
    text = shown(image, TERM_PROGRAM="iTerm.app")
    found = re.search(r"\x1b]1337;File=inline=1;size=\d+:([^\a]*)\a", text)
    assert found is not None
    assert found[1] == image.data


def test_a_terminal_that_knows_sixels_gets_them(shown: Any) -> None:
    text = shown(block("PNG"), answer=b"\x1b[?62;4;22c")
    assert decoded(text) == {(x, y): PIXELS[y] for x in range(2) for y in range(7)}


def decoded(text: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """Pixels of sixels."""
    found = re.search(r"\x1bPq\"1;1;2;7((?:#\d+;2;\d+;\d+;\d+)*)([^\x1b]*)\x1b\\", text)
    assert found is not None, text
    colours = {
        number: tuple(round(int(part) * 2.55) for part in parts)
        for number, *parts in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", found[1])
    }
    pixels = {}
    for top, band in enumerate(found[2].split("-")):
        for line in band.split("$"):
            match = re.fullmatch(r"#(\d+)([?-~]*)", line)
            assert match is not None
            for x, character in enumerate(match[2]):
                for bit in range(6):
                    if ord(character) - 63 >> bit & 1:
                        pixels[x, 6 * top + bit] = colours[match[1]]
    return pixels


@pytest.mark.parametrize(
    "variables",
    [{}, {"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}],
    ids=["a plain terminal", "a multiplexer"],
)
def test_elsewhere_an_image_is_saved_in_a_temporary_folder(
    shown: Any, variables: dict[str, str], tmp_path: Path
) -> None:
    text = shown(block("PNG"), **variables)
    found = re.search(r"\[image saved to (\S*ors-images-\S+/picture-\d+\.png)\]", text)
    assert found is not None, text
    assert Path(found[1]).read_bytes() == base64.b64decode(block("PNG").data)
    assert not list(tmp_path.glob("*.png"))


def test_what_cannot_be_converted_is_saved(shown: Any) -> None:
    broken = ImageBlock(data=base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), mimeType="image/webp")
    assert "image saved to" in shown(broken, TERM="xterm-kitty")


def test_a_folder_of_ones_own_gets_the_image_too(shown: Any, tmp_path: Path) -> None:
    text = shown(block("PNG"), tmp_path / "mine", TERM="xterm-kitty")
    assert "\x1b_G" in text
    assert "[image saved to mine/picture-1.png]" in text
