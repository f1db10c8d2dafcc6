"""The parts of TRL's example. Needs TRL: `test_examples.py` runs this file where it is installed."""

import csv
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response

from examples.training.small_model import number_tokens, small_model, word_tokenizer
from examples.training.trl_grpo import ENVIRONMENTS, GIVEN, train, trl_tokenizer
from ors.cli.targets.process import served
from tests.support.tiny_model import tiny_model, tiny_tokenizer

PROMPT = "Find the hidden number between 1 and 16. You have 5 guesses."


def test_the_model_reads_numbers_and_the_words_that_matter() -> None:
    tokenizer = word_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(PROMPT)) == ["1", "16", "5"]
    refused = tokenizer.encode("{'error': '17 is not between 1 and 16'}")
    assert tokenizer.convert_ids_to_tokens(refused) == ["error", "17", "1", "16"]


def test_a_number_is_a_guess_and_everything_else_is_text() -> None:
    tokenizer = trl_tokenizer()
    (call,) = parse_response(tokenizer, tokenizer.encode("lower 7"))["tool_calls"]
    assert call["function"] == {"name": "guess", "arguments": {"number": 7}}
    assert not parse_response(tokenizer, tokenizer.encode("higher<end>")).get("tool_calls")


def test_a_call_is_one_token_and_the_template_keeps_what_was_said() -> None:
    tokenizer = word_tokenizer()
    assert set(number_tokens(tokenizer)) < set(small_model(tokenizer).generation_config.eos_token_id)
    assert is_chat_template_prefix_preserving(tokenizer)


@pytest.mark.timeout(300)
def test_a_model_that_is_given_is_trained(tmp_path: Path) -> None:
    for part in (tiny_model(), tiny_tokenizer()):
        part.save_pretrained(tmp_path / "model")
    recipe = replace(GIVEN, steps=1, tasks=1, samples=2, tokens=8)
    with served(ENVIRONMENTS) as url:
        train(url, recipe, Namespace(seed=0, out=tmp_path, model=str(tmp_path / "model")))
    with (tmp_path / "curve.csv").open() as file:
        (row,) = csv.DictReader(file)
    # Random bytes make no calls, which is a lost episode and not a failed one.
    assert (row["failed"], row["reward"], row["test"]) == ("0", "0.0", "0.0")
