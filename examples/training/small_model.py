"""A model of about 64,000 parameters and its tokenizer, made from nothing: a call of `guess` is one token."""

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedTokenizerFast, Qwen3Config

LARGEST = 20
"""The largest number that the small model can write. It has to learn that most tasks end below."""
WORDS = ("higher", "lower", "found", "error")
TEMPLATE = (
    "{% for message in messages %} {{ message.content }}{% for call in message.tool_calls or [] %}"
    " {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
)


def word_tokenizer() -> Any:
    """A token for each number and each word of `WORDS`; all other text is left out."""
    words = ["<pad>", "<end>", "<other>", *WORDS, *map(str, range(1, LARGEST + 1))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<other>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([r"\d+", *WORDS])), "removed", invert=True)
    made.add_special_tokens(["<pad>", "<end>", "<other>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<end>", unk_token="<other>", padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def number_tokens(tokenizer: Any) -> list[int]:
    """The tokens of 1 and up to `LARGEST`, each of which is a guess."""
    numbers: list[int] = tokenizer.convert_tokens_to_ids([str(number) for number in range(1, LARGEST + 1)])
    return numbers


def small_model(tokenizer: Any, family: type[PretrainedConfig] = Qwen3Config) -> Any:
    """A small model of a family. Each number ends a reply, so a call is one token."""
    config = family(
        vocab_size=len(tokenizer),
        hidden_size=48,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=256,
        initializer_range=0.1,  # for a width of thousands it would be less
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    torch.nn.init.zeros_(model.lm_head.weight)  # so that all tokens are equally likely at first
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *number_tokens(tokenizer)]
    return model
