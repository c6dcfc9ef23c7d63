"""Model folders made here: a tokenizer trained on a sentence, a llama of two layers with random weights."""

from __future__ import annotations

import json
from pathlib import Path

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tokenizer(folder: Path, tokenizer: object, template: str | None, **special: str) -> Path:
    """A model folder that holds only a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))  # type: ignore[attr-defined]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def write_tiny_llama(folder: Path) -> Path:
    """A llama of 2 layers with random weights and a byte-level tokenizer trained here: answers noise, loads at once."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the user asks and the assistant answers the user " * 10], trainer)
    write_tokenizer(folder, tokenizer, CHATML, eos_token="<|im_end|>")
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2600,
        bos_token_id=None,
        eos_token_id=1,
    )
    state = torch.get_rng_state()
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config)
    torch.set_rng_state(state)
    with torch.no_grad():  # sharp enough that greedy answers vary from token to token
        model.lm_head.weight.mul_(40)
    model.save_pretrained(str(folder))
    return folder
