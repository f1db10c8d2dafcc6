"""Images of a session, saved for people at a terminal."""

import base64
import re
from pathlib import Path

import pytest

from ors import ImageBlock
from ors.cli.output.printing import save_image

PIXEL = b"\x89PNG\r\n\x1a\n"


def block(data: bytes = PIXEL, mime: str = "image/png") -> ImageBlock:
    return ImageBlock(data=base64.b64encode(data).decode(), mimeType=mime)


def test_an_image_is_saved_in_a_temporary_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    save_image(block(), None, "picture", err=True)
    found = re.search(r"\[image saved to (\S*ors-images-\S+/picture-\d+\.png)\]", capsys.readouterr().err)
    assert found is not None
    assert Path(found[1]).read_bytes() == PIXEL


def test_each_image_gets_a_file_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for mime in ("image/png", "image/png", "image/nothing-known"):
        save_image(block(mime=mime), tmp_path / "mine", "picture", err=False)
    assert capsys.readouterr().out.splitlines() == [
        f"[image saved to mine/picture-{name}]" for name in ("1.png", "2.png", "1.bin")
    ]


def test_what_is_no_image_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    save_image(ImageBlock(data="no base64!", mimeType="image/png"), None, "picture", err=False)
    assert capsys.readouterr().out == "[image of type image/png is not valid base64]\n"
