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
        choices = f"one of {', '.join(WEIGHTS)}, five numbers, or weights of {', '.join(names)}"
        raise DataError(f"label_weights={weights!r}; give {choices}")
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

    >>> print(conversation([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "Hello!"))
    <extra_id_0>System
    Be brief.
    <extra_id_1>User
    Hi
    <extra_id_1>Assistant
    Hello!
    <extra_id_2>
    """
    turns = (
        [{"role": "user", "content": prompt}]
        if isinstance(prompt, str)
        else list(prompt)
    )
    system = (
        turns.pop(0)["content"] if turns and turns[0]["role"] == "system" else _SYSTEM
    )
    text = f"<extra_id_0>System\n{system}\n"
    for turn in [*turns, {"role": "assistant", "content": response}]:
        if turn["role"] not in _NAMES:
            raise DataError(
                f"prompt: a turn of {turn['role']!r}; allowed: 'system' first, 'user', 'assistant'"
            )
        text += f"<extra_id_1>{_NAMES[turn['role']]}\n{turn['content']}\n"
    return text + "<extra_id_2>"


class Triton(Dialect):
    """NeMo's reward server, which speaks Triton's binary protocol. `add_eos`: let it
    append its end token.
    """

    kind = "triton"
    identity = MappingProxyType({"template": "steerlm"})

    def __init__(self, add_eos: bool) -> None:
        if find_spec("tritonclient") is None:
            raise ImportError(
                f"asking a Triton server needs tritonclient: run {install_command('triton')}"
            )
        self.add_eos = add_eos

    def write(self, prompts: Sequence[Prompt], responses: Sequence[str]) -> Payloads:
        """Return one payload per response, in the SteerLM format; the server has the
        tokenizer.
        """
        texts = [
            conversation(prompt, response)
            for prompt, response in zip(prompts, responses, strict=True)
        ]
        groups = np.unique([repr(prompt) for prompt in prompts], return_inverse=True)[1]
        return Payloads(texts, groups.astype(np.intp), np.zeros(len(texts), np.intp))

    def request(self, texts: Sequence[Payload], model: str | None) -> Request:
        """Return the request for the attributes of some texts."""
        from tritonclient.http import (
            InferenceServerClient,
            InferInput,
            InferRequestedOutput,
        )

        sentences = np.array([[str(text).encode()] for text in texts], np.object_)
        inputs = [
            InferInput("sentences", list(sentences.shape), "BYTES").set_data_from_numpy(
                sentences
            ),
            InferInput("add_EOS", [len(texts), 1], "BOOL").set_data_from_numpy(
                np.full((len(texts), 1), self.add_eos)
            ),
        ]
        outputs = [InferRequestedOutput(name) for name in ("rewards", "exceeded")]
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
        rewards, exceeded = result.as_numpy("rewards"), result.as_numpy("exceeded")
        if (
            rewards is None
            or exceeded is None
            or not len(rewards) == exceeded.size == n_texts
        ):
            raise ValueError(f"no rewards and marks of length for {n_texts} texts")
        if exceeded.astype(bool).any():
            raise Failure(
                "the text is longer than the server's window (exceeded)", again=False
            )
        return Scored(
            [parse_numbers(row.ravel().astype(float).tolist()) for row in rewards]
        )
