"""SteerLM and Nemotron reward models behind NeMo's server, which speaks Triton's
protocol.

The conversation goes as text in the SteerLM format; what comes back are ratings, mostly
between 0 and 4, of five attributes (HelpSteer) or of nine (Open Assistant's four before
them). The reward is a weighted sum of them.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType

import numpy as np

from rmlab.records import install_command
from rmlab.scorers.base import Prompt
from rmlab.servers.dialects import Dialect, Payload, Payloads, Scored, parse_numbers
from rmlab.servers.http import Failure, Reply, Request
from rmlab.tables import DataError

Weights = str | Mapping[str, float] | Sequence[float] | None

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
"""The five of HelpSteer; in the nine-attribute form they come last."""

FIRST_FOUR = ("quality", "toxicity", "humor", "creativity")

WEIGHTS: Mapping[str, Sequence[float]] = MappingProxyType(
    {
        "Nemotron-4-340B-Reward": (0.3, 0.74, 0.46, 0.47, -0.33),
        "Llama3-70B-SteerLM-RM": (0.65, 0.8, 0.45, 0.55, -0.4),
    }
)
"""Weights of the five attributes as the models' cards give them."""


def weigh_attributes(width: int, weights: Weights) -> tuple[Sequence[str], Weights]:
    """Return the names of the attributes that a server rates, and their weights where a
    model's name was given.

    Five numbers are for HelpSteer's five attributes.
    """
    names = FIRST_FOUR + ATTRIBUTES if width == 9 else ATTRIBUTES
    if weights is None or (isinstance(weights, str) and weights not in WEIGHTS):
        models = ", ".join(WEIGHTS)
        choices = f"one of {models}, five numbers, or weights of {', '.join(names)}"
        raise DataError(f"label_weights={weights!r}", f"give {choices}")
    numbers = WEIGHTS[weights] if isinstance(weights, str) else weights
    if not isinstance(numbers, Mapping) and len(numbers) == len(ATTRIBUTES):
        numbers = dict(zip(ATTRIBUTES, numbers, strict=True))
    return names, numbers


_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
"""The system message that these models were trained with, where the conversation has
none.
"""

_NAMES = {"user": "User", "assistant": "Assistant"}


def conversation(prompt: Prompt, response: str) -> str:
    """Return one conversation in the SteerLM format, up to the place where the ratings
    would be written.

    >>> system = {"role": "system", "content": "Be brief."}
    >>> question = {"role": "user", "content": "Hi"}
    >>> print(conversation([system, question], "Hello!"))
    <extra_id_0>System
    Be brief.
    <extra_id_1>User
    Hi
    <extra_id_1>Assistant
    Hello!
    <extra_id_2>
    """
    if isinstance(prompt, str):
        turns = [{"role": "user", "content": prompt}]
    else:
        turns = list(prompt)
    system = _SYSTEM
    if turns and turns[0]["role"] == "system":
        system = turns.pop(0)["content"]
    turns.append({"role": "assistant", "content": response})

    text = f"<extra_id_0>System\n{system}\n"
    for turn in turns:
        role = turn["role"]
        if role not in _NAMES:
            allowed = "allowed: 'system' first, 'user', 'assistant'"
            raise DataError(f"prompt: a turn of {role!r}", allowed)
        text += f"<extra_id_1>{_NAMES[role]}\n{turn['content']}\n"
    return text + "<extra_id_2>"


class Triton(Dialect):
    """NeMo's reward server, which speaks Triton's binary protocol. `add_eos`: let it
    append its end token.
    """

    kind = "triton"
    usual_model = "reward_model"
    rates_attributes = True
    identity = MappingProxyType({"template": "steerlm"})

    def __init__(self, add_eos: bool) -> None:
        if find_spec("tritonclient") is None:
            command = install_command("triton")
            raise ImportError(
                f"asking a Triton server needs tritonclient: run {command}"
            )
        self.add_eos = add_eos

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response, in the SteerLM format; the server has the
        tokenizer.
        """
        texts = []
        for prompt, response in zip(prompts, responses, strict=True):
            texts.append(conversation(prompt, response))
        _, groups = np.unique([repr(prompt) for prompt in prompts], return_inverse=True)
        return Payloads(texts, groups.astype(np.intp), np.zeros(len(texts), np.intp))

    def request(self, texts: Sequence[Payload], model: str | None) -> Request:
        """Return the request for the attributes of some texts."""
        from tritonclient.http import (
            InferenceServerClient,
            InferInput,
            InferRequestedOutput,
        )

        sentences = np.array([[str(text).encode()] for text in texts], np.object_)
        text_input = InferInput("sentences", list(sentences.shape), "BYTES")
        text_input.set_data_from_numpy(sentences)
        eos_marks = np.full((len(texts), 1), self.add_eos)
        eos_input = InferInput("add_EOS", list(eos_marks.shape), "BOOL")
        eos_input.set_data_from_numpy(eos_marks)
        inputs = [text_input, eos_input]
        outputs = [InferRequestedOutput("rewards"), InferRequestedOutput("exceeded")]
        content, json_size = InferenceServerClient.generate_request_body(
            inputs, outputs=outputs
        )
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(json_size),
        }
        return Request(f"/v2/models/{model}/infer", content, headers=headers)

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Return the attributes in a reply; raise where they are not whole, or the
        server cut a text.
        """
        from tritonclient.http import InferenceServerClient
        from tritonclient.utils import InferenceServerException

        size = reply.headers.get("inference-header-content-length")
        try:
            result = InferenceServerClient.parse_response_body(
                reply.content, header_length=size and int(size)
            )
        except InferenceServerException as error:
            raise ValueError(str(error)) from error
        rewards = result.as_numpy("rewards")
        exceeded = result.as_numpy("exceeded")
        problem = f"no rewards and marks of length for {n_texts} texts"
        if rewards is None or exceeded is None:
            raise ValueError(problem)
        if not len(rewards) == exceeded.size == n_texts:
            raise ValueError(problem)
        if exceeded.astype(bool).any():
            reason = "the text is longer than the server's window (exceeded)"
            raise Failure(reason, again=False)
        rows = rewards.reshape(n_texts, -1).astype(float).tolist()
        return Scored([parse_numbers(row) for row in rows])
