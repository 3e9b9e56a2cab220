"""NVIDIA's SteerLM and Nemotron reward models, which NeMo serves over Triton's binary
protocol: conversations, and ratings of their attributes, mostly between 0 and 4.

The reward is a weighted sum of them.
"""

from types import MappingProxyType
from typing import Any

import numpy as np

from rmlab.scorers.base import Prompt
from rmlab.servers.http import Failure, Reply, Request
from rmlab.servers.kinds.base import Payload, Payloads, Scored, ServerKind

WEIGHTS = MappingProxyType(
    {
        "helpfulness": 0.3,
        "correctness": 0.74,
        "coherence": 0.46,
        "complexity": 0.47,
        "verbosity": -0.33,
    }
)
"""HelpSteer's attributes, and their weights by the card of Nemotron-4-340B-Reward."""

_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
"""The system message that these models were trained with, where the conversation has
none.
"""


class Triton(ServerKind):
    """NeMo's reward server."""

    name = "triton"
    path = "/infer"
    form = "steerlm"
    weights = WEIGHTS
    usual_model = "reward_model"
    package = "tritonclient"

    def write(self, prompt: Prompt, response: str) -> Payload:
        """Return one conversation in the SteerLM format, up to the place where the
        ratings would be written.

        >>> system = {"role": "system", "content": "Be brief."}
        >>> question = {"role": "user", "content": "Hi"}
        >>> print(Triton().write([system, question], "Hello!"))
        <extra_id_0>System
        Be brief.
        <extra_id_1>User
        Hi
        <extra_id_1>Assistant
        Hello!
        <extra_id_2>
        """
        turns: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        if not isinstance(prompt, str):
            turns = list(prompt)
        system = _SYSTEM
        if turns[0]["role"] == "system":
            system = turns.pop(0)["content"]
        turns.append({"role": "assistant", "content": response})

        text = f"<extra_id_0>System\n{system}\n"
        for turn in turns:
            text += f"<extra_id_1>{turn['role'].title()}\n{turn['content']}\n"
        return text + "<extra_id_2>"

    def request(self, texts: Payloads, model: str | None) -> Request:
        """Return the request for the attributes of some texts."""
        from tritonclient.http import (
            InferenceServerClient,
            InferInput,
            InferRequestedOutput,
        )

        encoded = [[str(text).encode()] for text in texts]
        inputs = []
        for name, values, kind in (
            ("sentences", np.array(encoded, np.object_), "BYTES"),
            ("add_EOS", np.zeros((len(texts), 1), bool), "BOOL"),
        ):
            tensor = InferInput(name, values.shape, kind)
            tensor.set_data_from_numpy(values)
            inputs.append(tensor)
        outputs = [InferRequestedOutput("rewards"), InferRequestedOutput("exceeded")]
        content, json_size = InferenceServerClient.generate_request_body(
            inputs, outputs=outputs
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

        size = reply.headers["inference-header-content-length"]
        result = InferenceServerClient.parse_response_body(
            reply.content, header_length=int(size)
        )
        rewards = result.as_numpy("rewards")
        exceeded = result.as_numpy("exceeded")
        if len(rewards) != exceeded.size:
            raise ValueError("not a mark of length for each text")
        if exceeded.astype(bool).any():
            reason = "the text is longer than the server's window (exceeded)"
            raise Failure(reason, again=False, refused=True)
        return Scored(rewards.reshape(len(rewards), -1))
