"""A tokenizer of bytes and a model of about 40,000 parameters, made on the spot. Needs transformers."""

import json
from typing import Any

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def tiny_tokenizer() -> Any:
    """One token a byte, with the chat template of Qwen 3."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen3_chat_template

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = qwen3_chat_template
    return tokenizer


def tiny_processor() -> Any:
    """The same tokenizer with the images of Qwen 2.5 VL: one token for 28 x 28 pixels, and no videos."""
    from transformers import ProcessorMixin, Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from trl.chat_template_utils import qwen3_vl_chat_template

    class Pictures(Qwen2_5_VLProcessor):
        def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str) -> None:
            self.image_token, self.video_token = VISION[2:]
            self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids(VISION[2:])
            ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": VISION})
    images = Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28)
    return Pictures(images, tokenizer, qwen3_vl_chat_template)


def tiny_model() -> Any:
    """A random Qwen 3."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=256 + len(SPECIAL),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config)


def called(name: str, **given: Any) -> str:
    """The text of a reply that calls a tool."""
    call = json.dumps({"name": name, "arguments": given})
    return f"<tool_call>\n{call}\n</tool_call><|im_end|>"
