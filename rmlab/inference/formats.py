"""Chat formats of models whose tokenizers carry no template, as Jinja templates, by name."""

__all__ = ["FORMATS"]

_EACH = "{% for m in messages %}"

FORMATS = {
    "raw": _EACH + "{{ m['content'] }}{% endfor %}",
    "tulu": (
        _EACH + "{{ '<|' + m['role'] + '|>\n' + m['content'] }}"
        "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% if not loop.last %}{{ '\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '\n<|assistant|>\n' }}{% endif %}"
    ),
    "vicuna": (
        "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% else %}"
        "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions.{% endif %}{{ ' ' }}"
        + _EACH
        + "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}"
        "{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
    ),
    "zephyr": (
        _EACH + "{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
    "llama-2": (
        "{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}"
        "{% set system = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
        "{% else %}{% set turns = messages %}{% set system = '' %}{% endif %}"
        "{% for m in turns %}{% if m['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + (system if loop.first else '') + m['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "oasst": (
        _EACH + "{{ ('<|prompter|>' if m['role'] == 'user' else '<|' + m['role'] + '|>') + m['content'] + eos_token }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    ),
}
"""The names are FastChat's, which the benchmarks' runners use.

raw: the contents one behind the other, or as two segments where the tokenizer has a separator token, as encoders do.
tulu: open-instruct. vicuna: v1.1. zephyr: Mistral-7B beta. llama-2: chat. oasst: Pythia.
"""
