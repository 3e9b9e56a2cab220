"""Servers of reward models on loopback: what each kind answers to which request, wrong
defaults included.
"""

import json
import math
from dataclasses import dataclass

import numpy as np
from fakes import truth


def number(ids):
    """A score that depends on every token: any mix-up shows."""
    return 3 * truth(*ids)


def oracle(folder, dtype="float32"):
    """Scores by transformers itself, one text at a time."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=getattr(torch, dtype)
    ).eval()

    def score(ids):
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].double().tolist()

    return score


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def rows(score, ids):
    return np.ravel(score(tuple(ids))).tolist()


class Served:
    """A server whose rows are as `change(rows)` has them."""

    change = staticmethod(lambda rows: rows)


@dataclass
class Vllm(Served):
    """vLLM 0.32 as measured: a sigmoid by default, unknown fields ignored, text gets a
    second beginning token.

    `ignores`: does not know `use_activation`. `bos`: writes a beginning token before
    ids, too. `counts`: says how many tokens it read. `softmax`: that instead of raw
    scores. `window`: longer texts are refused.
    """

    score: object
    tokenizer: object
    ignores: bool = False
    bos: bool = False
    counts: bool = True
    softmax: bool = False
    window: int = 2048

    def __call__(self, path, body, headers):
        if path == "/v1/models":
            return {"data": [{"id": "org/tiny", "max_model_len": self.window}]}
        assert path in ("/classify", "/pooling"), path
        texts = [self._ids(text, body) for text in body["input"]]
        if max(map(len, texts)) > self.window:
            return (
                400,
                {},
                {
                    "error": {
                        "message": f"maximum context length is {self.window} tokens",
                        "code": 400,
                    }
                },
            )
        values = [self._activated(rows(self.score, ids), body) for ids in texts]
        named = [
            {"label": f"LABEL_{np.argmax(row)}", "probs": row, "num_classes": len(row)}
            for row in values
        ]
        pooled = [{"object": "pooling", "data": row} for row in values]
        data = [
            {"index": i} | row
            for i, row in enumerate(named if path == "/classify" else pooled)
        ]
        n = sum(map(len, texts))
        usage = {"prompt_tokens": n, "total_tokens": n, "completion_tokens": 0}
        answer = {
            "object": "list",
            "model": body.get("model", "org/tiny"),
            "data": self.change(data),
        }
        return answer | ({"usage": usage} if self.counts else {})

    def _ids(self, text, body):
        if isinstance(text, str):
            return self.tokenizer(
                text, add_special_tokens=body.get("add_special_tokens", True)
            )["input_ids"]
        return [self.tokenizer.bos_token_id, *text] if self.bos else text

    def _activated(self, row, body):
        if self.softmax:
            powers = np.exp(np.array(row) - max(row))
            return (powers / powers.sum()).tolist()
        raw = body.get("use_activation", True) is False and not self.ignores
        return row if raw else [sigmoid(x) for x in row]


@dataclass
class Sglang(Served):
    """SGLang's /classify: raw values in `embedding`, in the order of the texts."""

    score: object

    def __call__(self, path, body, headers):
        if path == "/get_model_info":
            return {"model_path": "org/tiny"}
        assert path == "/classify"
        assert "model" not in body
        texts = body["input_ids"]
        values = [rows(self.score, ids) for ids in texts]
        tokens = [{"prompt_tokens": len(ids)} for ids in texts]
        return self.change(
            [
                {"embedding": row, "meta_info": n}
                for row, n in zip(values, tokens, strict=True)
            ]
        )


@dataclass
class Tei(Served):
    """TEI's /predict: a list of texts is one pair, a sigmoid unless `raw_scores`,
    special tokens of its own.
    """

    score: object
    tokenizer: object

    def __call__(self, path, body, headers):
        if path == "/info":
            return {"model_id": "org/tiny"}
        assert path == "/predict"
        assert all(
            isinstance(text, list) and len(text) == 1 for text in body["inputs"]
        ), "a batch, not a pair"
        assert body["truncate"] is False
        ids = [
            self.tokenizer(text, add_special_tokens=True)["input_ids"]
            for (text,) in body["inputs"]
        ]
        if len(ids) > 32:
            return 413, {}, {"error": "batch size 33 > maximum allowed batch size 32"}
        values = [rows(self.score, text_ids) for text_ids in ids]
        if not body["raw_scores"]:
            values = [[sigmoid(x) for x in row] for row in values]
        named = [
            [{"label": f"LABEL_{i}", "score": x} for i, x in enumerate(row)]
            for row in values
        ]
        return self.change(
            [sorted(row, key=lambda label: -label["score"]) for row in named]
        )


@dataclass
class OpenRlhf(Served):
    """OpenRLHF's /get_reward: text without special tokens of the server's, cut silently
    at `longest`.
    """

    score: object
    tokenizer: object
    longest: int = 2048

    def __call__(self, path, body, headers):
        assert path == "/get_reward"
        ids = [
            self.tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in body["query"]
        ]
        rewards = self.change(
            [rows(self.score, text_ids[: self.longest])[0] for text_ids in ids]
        )
        return {"rewards": rewards, "scores": rewards, "extra_logs": {}}


@dataclass
class Triton(Served):
    """NeMo's reward server at the level of Triton's HTTP protocol, binary tensors
    included.

    `rate(text, add_eos)`: the attributes of one text. `longest`: characters from which
    on a text is `exceeded`.
    """

    rate: object
    longest: int = 10**6

    def __call__(self, path, body, headers):
        from tritonclient.utils import deserialize_bytes_tensor

        assert path == "/v2/models/reward_model/infer", path
        size = int(headers["inference-header-content-length"])
        head, tensors, offset = json.loads(body[:size]), {}, size
        for tensor in head["inputs"]:
            end = offset + tensor["parameters"]["binary_data_size"]
            tensors[tensor["name"]] = (
                tensor["shape"],
                tensor["datatype"],
                body[offset:end],
            )
            offset = end
        shape, kind, data = tensors["sentences"]
        assert kind == "BYTES"
        assert shape[1:] == [1]
        texts = [text.decode() for text in deserialize_bytes_tensor(data).tolist()]
        assert tensors["add_EOS"][:2] == ([len(texts), 1], "BOOL")
        add_eos = [bool(byte) for byte in tensors["add_EOS"][2]]
        values = self.change(
            [
                (self.rate(t, eos), len(t) > self.longest)
                for t, eos in zip(texts, add_eos, strict=True)
            ]
        )
        rewards, exceeded = zip(*values, strict=True)
        arrays = {
            "rewards": ("FP32", np.array(rewards, np.float32)),
            "exceeded": ("BOOL", np.array(exceeded)[:, None]),
        }
        outputs = [
            {
                "name": name,
                "datatype": kind,
                "shape": list(x.shape),
                "parameters": {"binary_data_size": x.nbytes},
            }
            for name, (kind, x) in arrays.items()
        ]
        head = json.dumps(
            {"model_name": "reward_model", "model_version": "1", "outputs": outputs}
        ).encode()
        headers = {
            "inference-header-content-length": len(head),
            "content-type": "application/octet-stream",
        }
        return 200, headers, head + b"".join(x.tobytes() for _, x in arrays.values())
