"""Templates: what stands in the ids, where the answer begins, what is refused."""

import json
from datetime import datetime

import numpy as np
import pytest
from transformers.utils import chat_template_utils

from rmlab import toy
from rmlab.chat_templates import CHAT_TEMPLATES
from rmlab.inference.encoding import encode
from rmlab.inference.templates import FORMATS, render
from rmlab.tables import DataError


class ThatDay(datetime):
    """The clock at midnight of the day that templates read instead of today's."""

    @classmethod
    def now(cls):
        return datetime(2024, 7, 26)


CLOCK = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') "
    "%}{% endif %}"
    "{{ strftime_now('%Y-%m-%d') }} {{ date_string }}{{ strftime_now(format='%A, %-d "
    "%B') }}"
    "{{ strftime_now('100%% %%d %d %% %y%m%d %x %X %c') }}"
    "\n  {% if strftime_now('%Y') | int > 2023 %}new{{ strftime_now('%j %p') }}\n{% "
    "endif %}"
)
"""Reads the clock as templates do: each format by name."""


FAILING = {
    "a macro of itself": (
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "RecursionError",
    ),
    "no end of a block": ("{% for m in", "refuses conversation 0"),
    "a role": (
        "{{ raise_exception('no ' ~ messages[0]['role']) }}",
        "refuses.*'user'.*no user",
    ),
    "too much text": ("{{ 'a' * 10 ** 15 }}", "MemoryError"),
}
"""What is wrong, and what is said of it."""

# In the manner of published templates: what they declare, loop over, refuse, and where
# they look at the clock.
PUBLISHED = {
    "Llama 3.2": (
        "{{- bos_token }}{%- if not date_string is defined %}{%- if strftime_now is "
        "defined %}"
        "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set "
        "date_string = '26 Jul 2024' %}{%- endif %}"
        "{%- endif %}{{- 'Today Date: ' + date_string }}"
        "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + "
        "'<|end_header_id|>\n\n' "
        "+ message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- "
        "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "Mistral": (
        "{%- set ns = namespace(index=0) %}{{- bos_token }}{%- for message in messages "
        "%}"
        "{%- if message.role == 'user' %}{{- '[INST] ' + message.content + '[/INST]' }}"
        "{%- elif message.role == 'assistant' %}{{- ' ' + message.content + eos_token "
        "}}"
        "{%- else %}{{- raise_exception('Only user and assistant roles!') }}{%- endif "
        "%}"
        "{%- set ns.index = ns.index + 1 %}{%- endfor %}"
    ),
    "Gemma 3": (
        "{{ bos_token }}{%- set first = '' %}{%- set turns = messages %}"
        "{%- if messages[0]['role'] == 'system' %}"
        "{%- set first = messages[0]['content'] + '\n\n' %}"
        "{%- set turns = messages[1:] %}{%- endif %}"
        "{%- for message in turns %}"
        "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{%- endif %}"
        "{%- set role = 'model' if message['role'] == 'assistant' else "
        "message['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}"
        "{{ message['content'] | trim }}{{ '<end_of_turn>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}"
    ),
    "Qwen 2.5": (
        "{%- if messages[0]['role'] != 'system' %}"
        "{{- '<|im_start|>system\nDefault.<|im_end|>\n' }}{%- endif %}"
        "{%- if tools %}{{- '<|im_start|>tools\n' }}{%- for tool in tools %}"
        "{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}"
        "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
        "{{- message.content or '' }}{%- for call in message.tool_calls or [] %}"
        "{{- '<tool_call>' }}{{- call.function | tojson }}{{- '</tool_call>' }}"
        "{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
    ),
    "Qwen 3": (
        "{%- if tools %}{{- '<|im_start|>tools\n' + tools | tojson + '<|im_end|>\n' }}"
        "{%- endif %}{%- for message in messages %}"
        "{{- '<|im_start|>' + message.role + '\n' }}"
        "{%- if message.role == 'assistant' and "
        "(loop.last or message.reasoning_content) %}"
        "{{- '<think>\n' + (message.reasoning_content or '') + '\n</think>\n\n' }}"
        "{%- endif %}{{- message.content or '' }}"
        "{%- for call in message.tool_calls or [] %}"
        "{{- '<tool_call>' }}{{- call.function | tojson }}{{- '</tool_call>' }}"
        "{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}"
        "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
    ),
    "Phi": (
        "{% for message in messages %}"
        "{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}"
        "{% else %}{{ eos_token }}{% endif %}"
    ),
    "Command-R": (
        "{{ bos_token }}{% for message in messages %}"
        "{% set kind = {'user': 'USER', 'assistant': 'CHATBOT'} %}"
        "{{ '<|START|><|' + kind.get(message['role'], 'SYSTEM') + '|>' }}"
        "{{ message['content'].strip() }}{{ '<|END|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START|><|CHATBOT|>' }}{% endif %}"
    ),
    "SmolLM3": (
        "{%- set thinks = enable_thinking | default(true) %}"
        "{{- '<|im_start|>system\nReasoning: ' ~ ('on' if thinks else 'off') ~ '\n' }}"
        "{%- set turns = messages %}{%- if messages[0].role == 'system' %}"
        "{{- messages[0].content }}{%- set turns = messages[1:] %}{%- endif %}"
        "{{- '<|im_end|>\n' }}{%- for message in turns %}"
        "{{- '<|im_start|>' + message.role + '\n' }}"
        "{%- if message.role == 'assistant' and not thinks %}"
        "{{- '<think>\n\n</think>\n' }}{%- endif %}"
        "{{- message.content + '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if not thinks %}{{- '<think>\n\n</think>\n' }}{%- endif %}{%- endif %}"
    ),
}

CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Two and two?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "And three and three?"},
]


@pytest.fixture(scope="module")
def words():
    return toy.tokenizer()


@pytest.fixture(scope="module")
def bare():
    return toy.tokenizer(chat_template=None)


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def rows(encoded):
    """The token ids of each text."""
    return [tuple(ids.tolist()) for ids in encoded.ids]


def split(tokenizer, encoded, i=0):
    start = encoded.response_start[i]
    return text_of(tokenizer, encoded.ids[i][:start]), text_of(
        tokenizer, encoded.ids[i][start:]
    )


VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
# What FastChat writes for one question and its answer, and for a system message, three
# turns and the answer; the bar stands where the prompt with the assistant's header
# ends.
FASTCHAT = {
    "raw": ("Hi?¦Yes.", "Be short.Two and two?Four.And three and three?¦Six."),
    "tulu": (
        "<|user|>\nHi?\n<|assistant|>\n¦Yes.\n",
        "Be short.\n<|user|>\nTwo and two?\n<|assistant|>\nFour.\n"
        "<|user|>\nAnd three and three?\n<|assistant|>\n¦Six.\n",
    ),
    "vicuna": (
        f"{VICUNA} USER: Hi? ASSISTANT:¦ Yes.</s>",
        (
            "Be short. USER: Two and two? ASSISTANT: Four.</s>USER: And three and "
            "three? ASSISTANT:¦ Six.</s>"
        ),
    ),
    "zephyr": (
        "<|system|>\n</s>\n<|user|>\nHi?</s>\n<|assistant|>\n¦Yes.</s>\n",
        "<|system|>\nBe short.</s>\n<|user|>\nTwo and two?</s>\n<|assistant|>\n"
        "Four.</s>\n"
        "<|user|>\nAnd three and three?</s>\n<|assistant|>\n¦Six.</s>\n",
    ),
    "llama-2": (
        "[INST] Hi? [/INST]¦ Yes. </s><s>",
        "[INST] <<SYS>>\nBe short.\n<</SYS>>\n\nTwo and two? [/INST] Four. </s><s>"
        "[INST] And three and three? [/INST]¦ Six. </s><s>",
    ),
    "mistral": (
        "[INST] Hi? [/INST]¦ Yes.</s>",
        (
            "[INST] Be short.\nTwo and two? [/INST] Four.</s>[INST] And three and "
            "three? [/INST]¦ Six.</s>"
        ),
    ),
    "oasst": (
        "<|prompter|>Hi?<|endoftext|><|assistant|>¦Yes.<|endoftext|>",
        "Be short.<|prompter|>Two and two?<|endoftext|><|assistant|>Four.<|endoftext|>"
        "<|prompter|>And three and three?<|endoftext|><|assistant|>¦Six.<|endoftext|>",
    ),
    "pku-align": (
        "BEGINNING OF CONVERSATION: USER: Hi? ASSISTANT: ¦Yes. ",
        (
            "Be short. USER: Two and two? ASSISTANT: Four. USER: And three and three? "
            "ASSISTANT: ¦Six. "
        ),
    ),
    "ziya": (
        "\n\nHuman: Hi?\n\nAssistant: ¦Yes.\n\n",
        (
            "Be short.\n\nHuman: Two and two?\n\nAssistant: Four.\n\nHuman: And three "
            "and three?\n\nAssistant: ¦Six.\n\n"
        ),
    ),
    "open-instruct": (
        "<|user|>\nHi?\n<|assistant|>\n¦Yes.<|eot_id|>",
        "<|system|>\nBe short.\n<|user|>\nTwo and two?\n"
        "<|assistant|>\nFour.<|eot_id|>\n"
        "<|user|>\nAnd three and three?\n<|assistant|>\n¦Six.<|eot_id|>",
    ),
    "openbmb": (
        "User: Hi?\n\nAssistant: ¦Yes.\n\n",
        (
            "Be short.User: Two and two?\n\nAssistant: Four.\n\nUser: And three and "
            "three?\n\nAssistant: ¦Six.\n\n"
        ),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_named_formats_are_those_of_fastchat_to_the_letter(bare, name):
    for expected, prompt, answer in zip(
        FASTCHAT[name], ("Hi?", CHAT), ("Yes.", "Six."), strict=True
    ):
        encoded = encode(bare, [prompt], [answer], template=name)
        before, after = split(bare, encoded)
        header, _, rest = expected.rpartition("¦")
        assert before.removeprefix(bare.bos_token) + after == header + rest
        # A token that holds characters of both sides belongs to the answer.
        assert header.startswith(before.removeprefix(bare.bos_token))
        assert len(after) - len(rest) <= 2
        assert (encoded.ids[0] == bare.bos_token_id).sum() == 1
        assert encoded.source == name


def test_raw_gives_encoders_two_segments():
    words = encoder_words(chat_template=None)
    encoded = encode(words, ["Hi?", CHAT], ["Yes.", "Six."], template="raw")
    assert encoded.ids[0].tolist() == words("Hi?", "Yes.").input_ids
    assert split(words, encoded) == ("[CLS]Hi?[SEP]", "Yes.[SEP]")
    assert split(words, encoded, 1)[1] == "Six.[SEP]"
    ended = encode(words, ["Hi?"], ["Yes."], template="raw", eos=True)
    assert ended.ids[0].tolist() == [*encoded.ids[0], words.eos_token_id]


def test_without_a_template_the_formats_are_named(bare):
    with pytest.raises(
        DataError,
        match=(
            r"no chat template.*'raw' \| 'tulu' .* 'vicuna' .* 'openbmb', a Jinja "
            r"template, or a file"
        ),
    ):
        encode(bare, ["Hi?"], ["Yes."])
    with pytest.raises(ValueError, match=r"template='tulip'.*did you mean 'tulu'"):
        encode(bare, ["Hi?"], ["Yes."], template="tulip")


def test_the_end_is_what_was_asked_for(bare):
    words = toy.tokenizer()
    last = encode(words, ["Hi?"], ["Yes."])
    without = encode(words, ["Hi?"], ["Yes."], eos=False)
    assert rows(encode(words, ["Hi?"], ["Yes."], eos=True)) == rows(last)
    assert without.ids[0].tolist() == last.ids[0][:-1].tolist()
    assert without.template_hash != last.template_hash
    for eos in (None, True):
        (ids,) = encode(bare, ["Hi?"], ["Yes."], template="raw", eos=eos).ids
        assert (ids[-1] == bare.eos_token_id) == bool(eos)


def decoder_words(single, **options):
    """The toy tokenizer with another post-processor."""
    from tokenizers import processors

    words = toy.tokenizer(**options)
    marks = [(name, words.convert_tokens_to_ids(name)) for name in single.split()]
    marks = [mark for mark in marks if mark[0] != "$A"]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=marks
    )
    return words


@pytest.mark.parametrize(
    "single", ["<|begin_of_text|> $A <|eot_id|>", "$A <|eot_id|>", "$A"]
)
@pytest.mark.parametrize("template", ["chatml", "llama3"])
def test_a_decoder_keeps_the_special_tokens_that_its_tokenizer_writes(single, template):
    words = decoder_words(single, chat_template=template)
    (ids,) = encode(words, ["Hi?"], ["Yes."]).ids
    chat = [
        {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": "Yes."},
    ]
    text = words.apply_chat_template(chat, tokenize=False)
    # Each stands once.
    text = text.removeprefix(words.bos_token * single.startswith("<"))
    text = text.removesuffix(words.eos_token * single.endswith(">"))
    assert ids.tolist() == words(text)["input_ids"]

    # What `apply_chat_template(tokenize=True)` gives, which some are trained on.
    own = words.apply_chat_template(chat, return_dict=False)
    is_begun = template == "llama3"
    encoded = encode(words, ["Hi?"], ["Yes."], bos=is_begun, eos=is_begun)
    assert encoded.ids[0].tolist() == own
    assert split(words, encoded)[1].startswith("Yes.")
    both = encode(words, ["Hi?"], ["Yes."], bos=True, eos=True).ids[0]
    assert (both[0], both[-1]) == (words.bos_token_id, words.eos_token_id)
    neither = encode(words, ["Hi?"], ["Yes."], bos=False, eos=False).ids[0]
    assert (neither[0], neither[-1]) != (words.bos_token_id, words.eos_token_id)


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
        },
    }
]
# Reads all that messages may have, as the templates of models that call tools do.
FIELDS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}{{ ' ' ~ m.name if m.name }}>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content or '' }}{% for call in m.tool_calls %}"
    "<call>{{ call.function.name }}({{ call.function.arguments | tojson }})</call>"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is false %}<think></think>{% endif %}{% endif %}"
)
CALL = [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]


def test_template_options_reach_the_template_or_are_refused():
    words = toy.tokenizer(chat_template=FIELDS)
    plain, fast = (
        encode(words, ["Hi?"], ["Yes."], template_options=options)
        for options in (None, {"enable_thinking": False})
    )
    assert plain.ids[0].tolist() == fast.ids[0].tolist()  # the prompt's end alone
    assert plain.template_hash != fast.template_hash
    for name in ("enable_thinkng", "tokenize", "messages"):
        with pytest.raises(DataError, match=name):
            encode(words, ["Hi?"], ["Yes."], template_options={name: False})


@pytest.mark.parametrize("template", ["chatml", *FORMATS])
def test_a_system_message_is_put_before_every_conversation(template):
    words = toy.tokenizer(chat_template=CHAT_TEMPLATES.get(template))
    name = None if template == "chatml" else template
    turns = [{"role": "user", "content": "Why?"}]
    own = [{"role": "system", "content": "Be kind."}, *turns]
    added = encode(words, ["Why?"], ["So."], system="Be kind.", template=name)
    written = encode(words, [own], ["So."], template=name)
    assert added.ids[0].tolist() == written.ids[0].tolist()
    assert added.template_hash != written.template_hash


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "raw"])
def test_named_formats_refuse_what_they_do_not_write(bare, name):
    tool = [*CHAT, {"role": "tool", "content": "4"}]
    with pytest.raises(DataError, match="no role tool"):
        encode(bare, [tool], ["So."], template=name)


def test_groups_and_keys(words):
    encoded = encode(
        words, ["a", CHAT, "a", list(CHAT), "a"], ["x", "x", "y", "y", "x"]
    )
    assert encoded.groups.tolist() == [0, 1, 0, 1, 0]
    assert rows(encoded)[0] == rows(encoded)[4]
    assert len({*rows(encoded)}) == 4


def test_truncation_keeps_the_side_it_should(words):
    full = encode(words, ["Hi? " * 30], ["Yes."])
    left = encode(words, ["Hi? " * 30], ["Yes."], max_length=40, truncate="left")
    assert len(left.ids[0]) == 40
    assert left.ids[0][0] == words.bos_token_id
    assert left.ids[0][1:].tolist() == full.ids[0][-39:].tolist()
    assert split(words, left)[1] == split(words, full)[1]
    assert left.truncated.tolist() == [True]
    right = encode(
        words, ["Hi?", "Hi?"], ["Yes. " * 30, "No."], max_length=40, truncate="right"
    )
    assert right.truncated.tolist() == [True, False]
    whole = encode(words, ["Hi?"], ["Yes. " * 30])
    assert right.ids[0].tolist() == whole.ids[0][:40].tolist()
    assert right.response_start[0] == whole.response_start[0]
    with pytest.raises(DataError, match="leaves nothing of a response"):
        encode(words, ["Hi? " * 30], ["Yes."], max_length=20, truncate="right")


USERS = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("prompts", "answers", "options", "named"),
    [
        (["a", "b", "c"], ["x", "", " \n"], {}, "2 of 3 are empty, first number 1"),
        (["a", "b"], ["x"], {}, "2 prompts and 1 responses"),
        (["a"], ["x"], {"max_length": 9, "truncate": "middle"}, "truncate='middle'"),
        (["a"], ["x" * 99], {"max_length": 40}, "text 0 with .*truncate='left'"),
        (["a"], ["x"], {"system": "Be kind.", "template": USERS}, "system='Be kind"),
    ],
)
def test_bad_input_is_named(words, prompts, answers, options, named):
    with pytest.raises(ValueError, match=named):
        encode(words, prompts, answers, **options)


def test_a_beginning_token_that_cannot_be_written_is_refused():
    words = toy.tokenizer(chat_template="chatml")
    words.bos_token = None
    with pytest.raises(DataError, match="bos=False"):
        encode(words, ["Hi?"], ["Yes."], bos=False)


def test_the_tokenizer_is_left_as_it_was(words):
    words.backend_tokenizer.enable_truncation(5)
    words.backend_tokenizer.enable_padding(length=7)
    before = (
        words.backend_tokenizer.to_str(),
        words.chat_template,
        dict(words.init_kwargs),
    )
    try:
        encoded = encode(words, ["Hi? " * 20], ["Yes."])
        assert (
            words.backend_tokenizer.to_str(),
            words.chat_template,
            dict(words.init_kwargs),
        ) == before
        assert len(encoded.ids[0]) > 20
    finally:
        words.backend_tokenizer.no_truncation()
        words.backend_tokenizer.no_padding()


def test_a_template_may_be_given_as_jinja_or_as_a_file(bare, tmp_path):
    jinja = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    path = tmp_path / "mine.jinja"
    path.write_text(jinja)
    first, second, third = (
        encode(bare, ["Hi?"], ["Yes."], template=given)
        for given in (jinja, path, str(path))
    )
    assert text_of(bare, first.ids[0]) == f"{bare.bos_token}<user>Hi?<assistant>Yes."
    assert rows(first) == rows(second) == rows(third)
    assert first.template_hash == second.template_hash
    assert first.source == "given"
    with pytest.raises(
        DataError, match=r"template='nowhere\.jinja'.*or a file that holds one"
    ):
        encode(bare, ["Hi?"], ["Yes."], template="nowhere.jinja")


def encoder_words(order="bert", chat_template="chatml"):
    """A tokenizer that writes [CLS] before a text and [SEP] behind it; XLNet's writes
    both behind it.
    """
    from tokenizers import processors

    words = toy.tokenizer(chat_template=chat_template)
    words.bos_token = None
    words.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
    marks = [("[CLS]", words.cls_token_id), ("[SEP]", words.sep_token_id)]
    single = {"bert": "[CLS] $A [SEP]", "xlnet": "$A [SEP] [CLS]"}[order]
    words.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} $B [SEP]", special_tokens=marks
    )
    return words


@pytest.mark.parametrize("order", ["bert", "xlnet"])
@pytest.mark.parametrize("template", [None, "vicuna"])
def test_encoders_get_their_special_tokens_around_what_the_template_writes(
    order, template
):
    words = encoder_words(order)
    encoded = encode(words, ["Hi?", CHAT], ["Yes.", "Six."], template=template)
    for i, (prompt, answer) in enumerate([("Hi?", "Yes."), (CHAT, "Six.")]):
        messages = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        )
        turns, jinja = (
            [*messages, {"role": "assistant", "content": answer}],
            FORMATS.get(template),
        )
        text = words.apply_chat_template(turns, tokenize=False, chat_template=jinja)
        assert encoded.ids[i].tolist() == words(text)["input_ids"]
        assert split(words, encoded, i)[1].lstrip().startswith(answer)


def test_special_tokens_that_a_template_writes_too_stand_once():
    words = encoder_words(
        chat_template="{{ cls_token }}"
        + toy.models.CHAT_TEMPLATES["chatml"]
        + "{{ sep_token }}"
    )
    twice = encode(words, ["Hi?"], ["Yes."])
    once = encode(encoder_words(), ["Hi?"], ["Yes."])
    assert twice.ids[0].tolist() == once.ids[0].tolist()
    assert twice.response_start[0] == once.response_start[0]


@pytest.mark.parametrize(
    ("order", "template"), [("bert", None), ("xlnet", None), ("bert", "raw")]
)
@pytest.mark.parametrize("truncate", ["left", "right"])
def test_special_tokens_survive_truncation(order, template, truncate):
    words = encoder_words(order)
    texts = ["A long question about France."], ["Paris, a city on the river Seine."]
    whole = encode(words, *texts, template=template)
    cut = encode(
        words,
        *texts,
        template=template,
        max_length=len(whole.ids[0]) - 3,
        truncate=truncate,
    )
    assert len(cut.ids[0]) == len(whole.ids[0]) - 3
    assert cut.truncated.all()
    ends = {"bert": (0, -1), "xlnet": (-1, -2)}[order]
    assert [cut.ids[0][end] for end in ends] == [words.cls_token_id, words.sep_token_id]


def test_a_pinned_template_writes_what_transformers_would_have_written_that_day(
    monkeypatch,
):
    """However it reads the clock."""
    jinja = CLOCK + toy.models.CHAT_TEMPLATES["chatml"]
    words = toy.tokenizer(chat_template=jinja)
    pinned = render(words, jinja, [CHAT], header=True)
    assert "2024-07-26 26 Jul 2024" in pinned[0]
    assert pinned == render(words, jinja, [CHAT], header=True)
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", ThatDay)
    assert pinned == [
        words.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    ]
    encoded = encode(words, ["Hi?"], ["Yes."])
    assert "2024-07-26 26 Jul 2024" in text_of(words, encoded.ids[0])
    assert encoded.date == "26 Jul 2024"
    assert encode(toy.tokenizer(), ["Hi?"], ["Yes."]).date is None


def test_a_template_that_makes_the_format_of_its_date_is_refused(words):
    jinja = "{% set form = '%d' %}{{ strftime_now(form) }}"
    with pytest.raises(DataError, match="makes the format of its date"):
        render(words, jinja, [CHAT], header=False)


@pytest.mark.parametrize(("broken", "message"), FAILING.values(), ids=FAILING)
def test_templates_that_fail_are_reported(broken, message):
    words = toy.tokenizer(chat_template=broken + toy.models.CHAT_TEMPLATES["chatml"])
    with pytest.raises(DataError, match=message):
        encode(words, ["Hi?"], ["Yes."])


R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}<|User|>{{ "
    "m['content'] }}{% else %}"
    "{% set content = m['content'] %}{% if '</think>' in content %}{% set content = "
    "content.split('</think>')[-1] %}"
    "{% endif %}<|Assistant|>{{ content }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
"""In the manner of DeepSeek-R1: the generation prompt opens a thought that answered
turns leave out.
"""


@pytest.mark.parametrize(
    "answer", ["A", "s", "<think", "ist", "|>", "zebra", "Yes, <|Assistant|> A."]
)
@pytest.mark.parametrize("prompt", ["A", CHAT[1:]])
def test_an_answer_begins_behind_the_header_of_answered_turns(prompt, answer):
    """However short the answer, and whatever of the header it repeats."""
    words = toy.tokenizer(chat_template=R1)
    encoded = encode(words, [prompt], [answer])
    before, after = split(words, encoded)
    assert after == f"{answer}<|eot_id|>"
    assert before.endswith("<|Assistant|>")


def test_the_dpo_runner_counts_a_merged_token_as_the_answers():
    """It holds the end of the prompt and the beginning of the answer."""
    words = toy.tokenizer(
        ["answering questions, answering well"] * 50, chat_template=FORMATS["raw"]
    )
    prompt, ids = (
        words(text, add_special_tokens=False)["input_ids"]
        for text in ("answer", "answering")
    )
    assert prompt != ids[: len(prompt)]
    merged = encode(words, ["answer"], ["ing"], convention="reward-bench-dpo")
    assert merged.ids[0].tolist() == [words.bos_token_id, *ids, words.eos_token_id]
    assert merged.response_start[0] == len(prompt)


CONVERSATIONS = {
    "turns": (CHAT[1:], "Six.", {}),
    "a system message": (CHAT[1:], "Six.", {"system": "Be kind."}),
    "no thought": (CHAT[1:], "Six.", {"template_options": {"enable_thinking": False}}),
    "a thought": (
        CHAT[1:],
        {"role": "assistant", "content": "Six.", "reasoning_content": "3 + 3"},
        {},
    ),
    "a tool": (
        [
            {"role": "tools", "content": json.dumps(TOOLS)},
            {"role": "user", "content": "2 + 2?"},
            {"role": "assistant", "content": "", "tool_calls": CALL},
            {"role": "tool", "content": "4"},
        ],
        {"role": "assistant", "content": "", "tool_calls": CALL},
        {},
    ),
}
# What the templates do not read: options are refused, fields of messages left out.
WITHOUT_THOUGHT = {*PUBLISHED} - {"Qwen 3", "SmolLM3"}
REFUSES = {("Mistral", "a system message")}
REFUSES |= {(name, "no thought") for name in WITHOUT_THOUGHT}
REFUSES |= {(name, "a tool") for name in ("Mistral", "Gemma 3")}
# These do not write the tools.
REFUSES |= {(name, "a tool") for name in ("Llama 3.2", "Command-R", "Phi", "SmolLM3")}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates_write_what_transformers_writes(
    name, conversation, monkeypatch
):
    monkeypatch.setattr(chat_template_utils, "datetime", ThatDay)
    words = toy.tokenizer(chat_template=PUBLISHED[name])
    turns, answer, options = CONVERSATIONS[conversation]
    if (name, conversation) in REFUSES:
        with pytest.raises(DataError, match="template"):
            encode(words, [turns], [answer], **options)
        return
    encoded = encode(words, [turns], [answer], **options)

    variables = dict(options.get("template_options", {}))
    if turns[0]["role"] == "tools":
        variables["tools"] = TOOLS
        turns = turns[1:]
    if "system" in options:
        turns = [{"role": "system", "content": options["system"]}, *turns]
    if isinstance(answer, str):
        answer = {"role": "assistant", "content": answer}
    text = words.apply_chat_template([*turns, answer], tokenize=False, **variables)
    header = words.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, **variables
    )
    ids = words(text.removeprefix(words.bos_token))["input_ids"]
    assert encoded.ids[0].tolist() == ids
    _, after = split(words, encoded)
    assert after.startswith(text.removeprefix(header)[:3])
    assert text.endswith(after)
    has_clock = "strftime_now" in PUBLISHED[name]
    assert encoded.date == ("26 Jul 2024" if has_clock else None)


def test_an_end_token_that_was_asked_for_survives_truncation(words):
    whole, cut = (
        encode(words, ["Hi?"], ["Yes. " * 30], eos=True, **options).ids[0]
        for options in ({}, {"max_length": 60, "truncate": "right"})
    )
    assert len(cut) == 60
    np.testing.assert_array_equal(cut, [*whole[:59], words.eos_token_id])
