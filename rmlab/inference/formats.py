"""Chat formats of models whose tokenizers carry no template, as Jinja templates, by name."""

__all__ = ["FORMATS"]

_SYSTEM = (
    "{% if messages and messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}"
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}"
)
"""Takes a system message off the front: `system` ('' without one) and `turns`."""


def _lines(user: str, assistant: str, after: str, *, between: str = "", start: str = "{{ system }}") -> str:
    """A format that writes `role between content after` for every turn, behind `start`."""
    # "\\n" is a line break to Jinja, which reads it inside a string of its own.
    return (
        _SYSTEM + start + "{% for m in turns %}"
        "{{ ('" + user + "' if m['role'] == 'user' else '" + assistant + "') + '" + between + "' + m['content']"
        " + '" + after + "' }}{% endfor %}{% if add_generation_prompt %}{{ '" + assistant + between + "' }}{% endif %}"
    )


def _brackets(opening: str, closing: str) -> str:
    """A format of [INST] and [/INST]; `opening`: what the first turn opens with where there is a system message."""
    return (
        # The system message stands inside the first user's turn.
        _SYSTEM + "{% for m in turns %}{% if loop.first %}"
        "{{ (" + opening + " if system else '[INST] ') + m['content'] + ' ' }}"
        "{% elif m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' ' }}"
        "{% else %}{{ '[/INST] ' + m['content'] + '" + closing + "' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '[/INST]' }}{% endif %}"
    )


_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user\\'s questions."
)

FORMATS = {
    "raw": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "tulu": _lines("<|user|>", "<|assistant|>", "\\n", between="\\n", start="{{ system + ('\\n' if system else '') }}"),
    "open-instruct": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}"
    ),
    "vicuna": (
        _SYSTEM + "{{ (system or '" + _VICUNA + "') + ' ' }}{% for m in turns %}"
        "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
        "{% else %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
    ),
    "zephyr": _lines(
        "<|user|>", "<|assistant|>", "</s>\\n", between="\\n", start="{{ '<|system|>\\n' + system + '</s>\\n' }}"
    ),
    "llama-2": _brackets("'[INST] <<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n'", " </s><s>"),
    "mistral": _brackets("'[INST] ' + system + '\\n'", "</s>"),
    "oasst": _lines("<|prompter|>", "<|assistant|>", "<|endoftext|>"),
    "pku-align": _lines("USER: ", "ASSISTANT: ", " ", start="{{ (system or 'BEGINNING OF CONVERSATION:') + ' ' }}"),
    "ziya": _lines("Human: ", "Assistant: ", "\\n\\n", start="{{ system + '\\n\\n' }}"),
    "openbmb": _lines("User: ", "Assistant: ", "\\n\\n"),
}
"""Written to the letter as FastChat and the benchmarks' runners write them, the names of special tokens included.

raw: the contents one behind the other, or as two segments where the tokenizer has a separator token, as encoders do.
vicuna, oasst: FastChat's `vicuna_v1.1` and `oasst_pythia`. zephyr: opens with an empty system turn where there is none.
llama-2: closes every answer with `</s><s>`. pku-align: Beaver. openbmb: UltraRM. open-instruct: what tulu models were
trained on, with the tokenizer's end token behind an answer and no line break after the last one.
"""
