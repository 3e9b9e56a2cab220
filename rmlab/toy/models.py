"""Small tokenizers, and tiny random models in the layout of published models."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rmlab.chat_templates import CHAT_TEMPLATES
from rmlab.tables import check_option

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

TEXTS = (
    "What is the capital of France? "
    "The capital of France is Paris, a city on the river Seine.",
    "Write a function that adds two numbers.\n\n"
    "```python\ndef add(a, b):\n    return a + b\n```\n",
    "**Short answer:** yes.\n\n- First, look at the data.\n"
    "- Then count what is missing.\n- Then draw one figure.",
    "I am sorry, but I cannot help with that. "
    "If you are in danger, please call for help at once.",
    "Each training shot teaches the dog to wait; "
    "a small reward, given at once, works better than a large one later.",
    "Seven times eight is fifty-six: 7 * 8 = 56, "
    "because 7 * 4 = 28 and twice 28 is 56.",
)
"""Texts from which `tokenizer` learns its pieces by default."""

_PAD = "<|pad|>"
_BOS = "<|begin_of_text|>"
_EOS = "<|eot_id|>"
_SPECIAL = [
    _PAD,
    _BOS,
    _EOS,
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|im_start|>",
    "<|im_end|>",
    "[MASK]",
]

_ENCODER: dict[str, object] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
}
_DECODER = _ENCODER | {"num_key_value_heads": 2}
_HEADS = {"head_dim": 8}

ARCHITECTURES: dict[str, dict[str, object]] = {
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
    | {
        "num_hidden_layers": 4,
        "local_attention": 16,
        "global_attn_every_n_layers": 2,
        "reference_compile": False,
    },
}
"""Tiny sizes of each architecture (a transformers model type).

`save_model` takes further settings by keyword.
"""

_TASKS = {
    "classifier": "AutoModelForSequenceClassification",
    "causal": "AutoModelForCausalLM",
    "backbone": "AutoModel",
}


def tokenizer(
    texts: Sequence[str] | None = None,
    *,
    chat_template: str | None = "llama3",
    vocab_size: int = 512,
) -> "PreTrainedTokenizerFast":
    """Train a byte-level BPE tokenizer, which can write any text.

    It has three different tokens for beginning, end and padding, and writes the
    BOS token before plain text, like Llama's.

    Parameters
    ----------
    texts : sequence of str, optional
        Texts from which the pieces are learned; by default TEXTS.
    chat_template : str, optional
        "llama3", "chatml", any Jinja text, or None for a tokenizer without a template.
    vocab_size : int
        Most pieces to learn.

    Returns
    -------
    PreTrainedTokenizerFast
        A tokenizer of transformers.

    Examples
    --------
    >>> ids = tokenizer().encode("What is the capital?")
    >>> tokenizer().decode(ids)
    '<|begin_of_text|>What is the capital?'
    """
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=_SPECIAL,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    if texts is None:
        texts = TEXTS
    core.train_from_iterator(texts, trainer)
    core.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A",
        pair=f"{_BOS} $A $B",
        special_tokens=[(_BOS, core.token_to_id(_BOS))],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=_BOS,
        eos_token=_EOS,
        pad_token=_PAD,
        mask_token="[MASK]",
    )
    fast.chat_template = CHAT_TEMPLATES.get(chat_template or "", chat_template)
    return fast


def save_model(
    folder: str | Path,
    architecture: str = "llama",
    *,
    task: str = "classifier",
    seed: int = 0,
    words: "PreTrainedTokenizerFast | None" = None,
    **config: object,
) -> Path:
    """Write a tiny random model and its tokenizer in the layout of published models.

    Parameters
    ----------
    folder : str or Path
        Where the files are written.
    architecture : str
        One of ARCHITECTURES.
    task : str
        "classifier" (one label unless `num_labels` says otherwise), "causal" or
        "backbone".
    seed : int
        The same seed gives the same weights; the random state of torch is unchanged.
    words : PreTrainedTokenizerFast, optional
        The tokenizer; by default `tokenizer()`.
    **config
        Further settings of the transformers configuration.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ValueError
        If there is no such architecture or task.
    """
    if words is None:
        words = tokenizer()
    model = random_model(words, architecture, task=task, seed=seed, **config)
    return write_model(model, words, folder)


def random_model(
    words: "PreTrainedTokenizerFast",
    architecture: str,
    *,
    task: str,
    seed: int,
    **config: object,
) -> "PreTrainedModel":
    """Return the model that `save_model` writes.

    Parameters
    ----------
    words : PreTrainedTokenizerFast
        The tokenizer whose size and special tokens the model has.
    architecture, task, seed, **config
        As for `save_model`.

    Returns
    -------
    PreTrainedModel
        The model in memory.
    """
    import torch
    import transformers

    check_option("architecture", architecture, [*ARCHITECTURES])
    check_option("task", task, [*_TASKS])
    settings: dict[str, object] = {
        "vocab_size": len(words),
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
        "cls_token_id": words.bos_token_id,
        "sep_token_id": words.eos_token_id,
        "num_labels": 1 if task == "classifier" else 2,
        "initializer_range": 0.2,
    }
    settings |= ARCHITECTURES[architecture]
    settings |= config
    model_config = transformers.AutoConfig.for_model(architecture, **settings)
    model_class = getattr(transformers, _TASKS[task])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = model_class.from_config(model_config)
    return model


def write_model(
    model: "PreTrainedModel", words: "PreTrainedTokenizerFast", folder: str | Path
) -> Path:
    """Write a model and its tokenizer in the layout of published models.

    Parameters
    ----------
    model : PreTrainedModel
        The model; it is set to evaluation.
    words : PreTrainedTokenizerFast
        Its tokenizer.
    folder : str or Path
        Where the files are written.

    Returns
    -------
    Path
        The folder.
    """
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    model.eval().save_pretrained(folder)
    if was_shown:
        logging.enable_progress_bar()
    words.save_pretrained(folder)
    return Path(folder)
