"""NVIDIA's SteerLM and Nemotron reward models, which NeMo serves over Triton's binary
protocol: conversations, attributes and their weights.

What comes back for a conversation are ratings, mostly between 0 and 4, of five
attributes (HelpSteer) or of nine (Open Assistant's four before them). The reward is a
weighted sum of them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from rmlab.scorers.base import Prompt
from rmlab.scorers.encoder import EncodeOptions
from rmlab.servers.http import Failure, Reply, Request
from rmlab.servers.kinds.base import Payload, Payloads, Scored, ServerKind
from rmlab.tables import DataError

ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
"""The five of HelpSteer; in the nine-attribute form they come last."""

FIRST_FOUR = ("quality", "toxicity", "humor", "creativity")

WEIGHTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "Nemotron-4-340B-Reward": dict(
            zip(ATTRIBUTES, (0.3, 0.74, 0.46, 0.47, -0.33), strict=True)
        ),
        "Llama3-70B-SteerLM-RM": dict(
            zip(ATTRIBUTES, (0.65, 0.8, 0.45, 0.55, -0.4), strict=True)
        ),
    }
)
"""Weights of the attributes as the models' cards give them."""

_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
"""The system message that these models were trained with, where the conversation has
none.
"""

_NAMES = {"user": "User", "assistant": "Assistant"}


class Triton(ServerKind):
    """NeMo's reward server."""

    name = "triton"
    path = "/infer"
    form = "steerlm"
    form_options = ("eos",)
    named_weights = WEIGHTS
    usual_model = "reward_model"
    package = "tritonclient"

    def write(self, prompt: Prompt, response: str, options: EncodeOptions) -> Payload:
        """Return the conversation, and whether the server appends its end token."""
        text = conversation(prompt, response)
        return {"sentences": text, "add_EOS": bool(options.get("eos"))}

    def request(self, texts: Payloads, model: str | None) -> Request:
        """Return the request for the attributes of some texts."""
        from tritonclient.http import (
            InferenceServerClient,
            InferInput,
            InferRequestedOutput,
        )

        rows: list[Any] = list(texts)
        sentences = np.array([[row["sentences"].encode()] for row in rows], np.object_)
        text_input = InferInput("sentences", sentences.shape, "BYTES")
        text_input.set_data_from_numpy(sentences)
        eos_marks = np.array([[row["add_EOS"]] for row in rows])
        eos_input = InferInput("add_EOS", eos_marks.shape, "BOOL")
        eos_input.set_data_from_numpy(eos_marks)
        outputs = [InferRequestedOutput("rewards"), InferRequestedOutput("exceeded")]
        content, json_size = InferenceServerClient.generate_request_body(
            [text_input, eos_input], outputs=outputs
        )
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(json_size),
        }
        return Request(f"/v2/models/{model}{self.path}", content, headers=headers)

    def read(self, reply: Reply) -> Scored:
        """Return the attributes in a reply; raise where it is damaged, or the server
        cut a text.
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
        if len(rewards) != exceeded.size:
            raise ValueError("not a mark of length for each text")
        if exceeded.astype(bool).any():
            reason = "the text is longer than the server's window (exceeded)"
            raise Failure(reason, again=False, refused=True)
        return Scored(rewards.reshape(len(rewards), -1))

    def name_outputs(self, n_outputs: int) -> Sequence[str]:
        """Return the attributes that the server rates."""
        return FIRST_FOUR + ATTRIBUTES if n_outputs == 9 else ATTRIBUTES


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
