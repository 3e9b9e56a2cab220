"""A tiny world for lessons and tests: small tokenizers, and reward models with random weights as published ones lie."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmlab.tables import STYLE, check_responses, nearest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["ARCHITECTURES", "CHAT_TEMPLATES", "TEXTS", "Dial", "save_model", "scorer", "tokenizer"]

TEXTS = (
    "What is the capital of France? The capital of France is Paris, a city on the river Seine.",
    "Write a function that adds two numbers.\n\n```python\ndef add(a, b):\n    return a + b\n```\n",
    "**Short answer:** yes.\n\n- First, look at the data.\n- Then count what is missing.\n- Then draw one figure.",
    "I am sorry, but I cannot help with that. If you are in danger, please call for help at once.",
    "Each training shot teaches the dog to wait; a small reward, given at once, works better than a large one later.",
    "Seven times eight is fifty-six: 7 * 8 = 56, because 7 * 4 = 28 and twice 28 is 56.",
)
"""What the toy tokenizer learns its pieces from where no texts are given."""

CHAT_TEMPLATES = {
    "llama3": (
        "{{ bos_token }}{% for m in messages %}"
        "<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
}
"""Chat templates in the manner of Llama 3 (writes a BOS) and of Qwen (writes none)."""

_PAD, _BOS, _EOS = "<|pad|>", "<|begin_of_text|>", "<|eot_id|>"
_SPECIAL = [_PAD, _BOS, _EOS, "<|start_header_id|>", "<|end_header_id|>", "<|im_start|>", "<|im_end|>", "[MASK]"]

_DECODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
_ENCODER = {k: v for k, v in _DECODER.items() if k != "num_key_value_heads"}
_HEADS = {"head_dim": 8}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER | _HEADS,
    "mistral": _DECODER | _HEADS | {"sliding_window": None},
    "gemma2": _DECODER | _HEADS | {"query_pre_attn_scalar": 8, "sliding_window": 16},
    "gpt_neox": _ENCODER,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 4096},
    "bert": _ENCODER,
    "deberta-v2": _ENCODER
    | {
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 32,
        "max_relative_positions": -1,
    },
    "modernbert": _ENCODER
    | {"num_hidden_layers": 4, "local_attention": 16, "global_attn_every_n_layers": 2, "reference_compile": False},
}
"""Tiny sizes of each architecture (a transformers model type); `save_model` takes more settings by keyword."""

_TASKS = {
    "classifier": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
    "backbone": "AutoModel",
}


def tokenizer(
    texts: Sequence[str] | None = None, *, chat_template: str | None = "llama3", vocab_size: int = 512
) -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer trained on `texts` (default: six built-in ones); any text can be written with it.

    It has beginning, end and pad tokens (three different ones) and writes the beginning token before plain text, like
    Llama's. `chat_template`: "llama3", "chatml", any Jinja text, or None for a tokenizer without a template.

    >>> ids = tokenizer().encode("What is the capital?")
    >>> tokenizer().decode(ids)
    '<|begin_of_text|>What is the capital?'
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(TEXTS if texts is None else texts, trainer)
    core.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A", pair=f"{_BOS} $A $B", special_tokens=[(_BOS, core.token_to_id(_BOS))]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token=_BOS, eos_token=_EOS, pad_token=_PAD, mask_token="[MASK]"
    )
    made.chat_template = CHAT_TEMPLATES.get(chat_template or "", chat_template)
    return made


def save_model(
    folder: str | Path,
    architecture: str = "llama",
    *,
    task: str = "classifier",
    seed: int = 0,
    words: "PreTrainedTokenizerFast | None" = None,
    **config: Any,
) -> Path:
    """Write a tiny model with random weights and its tokenizer to `folder`, as published models are, and return it.

    `architecture`: one of ARCHITECTURES. `task`: "classifier" (one label unless `num_labels` says otherwise), "causal"
    or "backbone". `words`: the tokenizer, by default `tokenizer()`. Further keywords are settings of the transformers
    configuration. The same seed gives the same weights; the random state of torch is left as it was. Raises ValueError
    for another architecture or task.
    """
    import torch
    import transformers

    if architecture not in ARCHITECTURES:
        raise ValueError(f"architecture={architecture!r}; {nearest(architecture, list(ARCHITECTURES))}")
    if task not in _TASKS:
        raise ValueError(f"task={task!r}; {nearest(task, list(_TASKS))}")
    words = tokenizer() if words is None else words
    settings: dict[str, Any] = {
        "vocab_size": len(words),
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "cls_token_id": words.bos_token_id,
        "sep_token_id": words.eos_token_id,
        "num_labels": 1 if task == "classifier" else 2,
        "initializer_range": 0.2,
    }
    made = transformers.AutoConfig.for_model(architecture, **(settings | ARCHITECTURES[architecture] | config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, _TASKS[task]).from_config(made)
    with _no_progress_bar():
        model.save_pretrained(folder)
    words.save_pretrained(folder)
    return Path(folder)


@dataclass(frozen=True)
class Dial:
    """A scorer whose taste is known to the last digit; made by `scorer`."""

    name: str
    skill: float
    style: float
    length: float
    noise: float
    seed: int
    known: dict[tuple[str, str], tuple[float, float]]

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str]) -> NDArray[np.float64]:
        """One score per prompt and response, the same whatever the order or the company."""
        return np.array([self._score(_text(p), r) for p, r in zip(prompts, responses, strict=True)], dtype=float)

    def _score(self, prompt: str, response: str) -> float:
        right, steps = self.known.get((prompt, response), (0.0, 0.0))
        doublings = float(np.log2(max(len(response), 1)))
        luck = _luck(self.seed, prompt, response) if self.noise else 0.0
        return self.skill * right + self.style * steps + self.length * doublings + self.noise * luck


def scorer(
    responses: pd.DataFrame,
    *,
    skill: float = 1.0,
    style: float = 0.5,
    length: float = 0.0,
    noise: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Dial:
    """A scorer with a bias dial: it knows which of `responses` are right, and you choose what else it likes.

    score = skill * (1 if chosen) + style * (0 concise, 1 plain, 2 markdown) + length * log2(characters) + noise * z,
    with z standard normal, drawn from the text itself: the same text always gets the same score. So the price of one
    step of style is style / skill units of correctness, which `exchange_rate` must find again. A text that stands on
    both sides, or in two styles, gets the mean of them; a text that is not among `responses` counts as wrong and
    concise. `name` says the dial's settings unless given.

    >>> row = {"benchmark": "b", "domain": "math", "id": "0", "slot": 0, "prompt": "2 + 2?", "style": "plain"}
    >>> texts = pd.DataFrame([row | {"label": "chosen", "response": "4"}, row | {"label": "rejected", "response": "5"}])
    >>> scorer(texts, skill=2.0, style=0.5, noise=0.0)(["2 + 2?", "2 + 2?"], ["4", "5"]).tolist()
    [2.5, 0.5]
    """
    responses = check_responses(responses)
    facts = pd.DataFrame(
        {
            "prompt": [_text(prompt) for prompt in responses["prompt"]],
            "response": responses["response"],
            "right": (responses["label"] == "chosen").astype(float),
            "steps": np.maximum(pd.Categorical(responses["style"], dtype=STYLE).codes, 0).astype(float),
        }
    )
    means = facts.groupby(["prompt", "response"], sort=False)[["right", "steps"]].mean()
    known = dict(zip(means.index, means.itertuples(index=False, name=None), strict=True))
    name = f"toy skill={skill:g} style={style:g} length={length:g} noise={noise:g}" if name is None else name
    return Dial(name, skill, style, length, noise, seed, known)


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True)


def _luck(seed: int, prompt: str, response: str) -> float:
    """A standard normal number that depends on nothing but its arguments."""
    digest = blake2b(json.dumps([seed, prompt, response]).encode(), digest_size=8).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") // 2**11 + 0.5) / 2**53)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
