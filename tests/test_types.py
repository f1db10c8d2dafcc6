from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from ors import types
from ors._json import dumps, loads
from ors.client.requests.decode import blocks, tool_output
from ors.types import Block, CreateSession, ImageBlock, RunToolError, Split, TextBlock, ToolOutput, ToolSpec


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (TextBlock, {"text": "x"}),
        (ImageBlock, {"data": "x", "mimeType": "image/png"}),
        (ToolOutput, {"blocks": []}),
        (ToolSpec, {"name": "x", "description": "", "input_schema": None}),
        (Split, {"name": "x", "type": "train"}),
        (RunToolError, {"error": "x"}),
    ],
)
def test_a_misspelt_field_fails_loudly(model: type[BaseModel], fields: dict[str, object]) -> None:
    assert model(**fields)
    with pytest.raises(ValidationError, match="finshed"):
        model(**fields, finshed=True)


def test_an_output_and_a_text_may_be_given_as_plain_text() -> None:
    output = ToolOutput("text", reward=1)
    assert output == ToolOutput(blocks=[TextBlock(text="text")], reward=1.0)
    assert ToolOutput([TextBlock("a")]).blocks == [TextBlock(text="a")]
    with pytest.raises(ValidationError, match="reward"):
        ToolOutput("text", reward="much")  # type: ignore[arg-type]
    assert ToolOutput.model_validate(output.model_dump()) == output
    with pytest.raises(ValidationError, match="blocks"):
        ToolOutput.model_validate({"blocks": "text"})  # on the wire, only what the standard says


def test_wire_order_is_the_specifications() -> None:
    output = ToolOutput(finished=True, reward=1, blocks=[TextBlock(type="text", text="x")])
    assert list(output.model_dump()) == ["blocks", "metadata", "reward", "finished"]
    assert list(output.blocks[0].__dict__) == ["text", "detail", "type"]


def test_blocks_take_any_sequence_and_plain_dicts() -> None:
    output = ToolOutput(blocks=({"text": "a", "type": "text"}, ImageBlock(data="", mimeType="image/png")))  # type: ignore[arg-type]
    assert [type(block) for block in output.blocks] == [TextBlock, ImageBlock]


@pytest.mark.parametrize("kind", get_args(Block))
def test_a_client_reads_every_kind_of_block_that_a_server_sends(kind: type[BaseModel]) -> None:
    texts = {name: name for name, field in kind.model_fields.items() if field.is_required()}
    block = kind(**texts, detail={"a": 1})
    sent = dumps({"ok": True, "output": ToolOutput(blocks=[block])})  # type: ignore[list-item]
    assert tool_output(sent).blocks == blocks(loads(dumps([block]))) == [block]


def test_secrets_do_not_show_when_a_request_is_printed() -> None:
    assert "hunter2" not in repr(CreateSession(task_spec={}, secrets={"key": "hunter2"}))


def test_what_is_public_is_listed_and_sorted() -> None:
    assert types.__all__ == sorted(types.__all__)
    assert all(hasattr(types, name) for name in types.__all__)
