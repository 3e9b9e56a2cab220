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


@dataclass
class Served:
    """A server whose rows are as `change(rows)` has them.

    `tokenizer`: of the servers that read text. `longest`: tokens that a text is cut to
    without a word.
    """

    score: object
    tokenizer: object = None
    longest: int = 10**6

    change = staticmethod(lambda rows: rows)

    def values(self, ids):
        """The outputs of a text."""
        return np.ravel(self.score(tuple(ids[: self.longest]))).tolist()

    def ids(self, text, add_special):
        return self.tokenizer(text, add_special_tokens=add_special)["input_ids"]


@dataclass
class Vllm(Served):
    """vLLM 0.32 as measured: a sigmoid by default, unknown fields ignored, text gets a
    second BOS token.

    `ignores`: does not know `use_activation`. `bos`: writes a BOS token before
    ids, too. `counts`: says how many tokens it read. `window`: longer texts are
    refused.
    """

    ignores: bool = False
    bos: bool = False
    counts: bool = True
    window: int = 2048

    def __call__(self, path, body, headers):
        if path == "/v1/models":
            return {"data": [{"id": "org/tiny", "max_model_len": self.window}]}
        assert path in ("/classify", "/pooling"), path
        texts = [self.read_text(text, body) for text in body["input"]]
        if max(map(len, texts)) > self.window:
            message = f"maximum context length is {self.window} tokens"
            return 400, {}, {"error": {"message": message, "code": 400}}

        is_raw = body.get("use_activation", True) is False and not self.ignores
        data = []
        for i, ids in enumerate(texts):
            row = self.values(ids)
            if not is_raw:
                row = [sigmoid(x) for x in row]
            named = {"label": f"LABEL_{np.argmax(row)}", "probs": row}
            if path == "/pooling":
                named = {"object": "pooling", "data": row}
            data.append({"index": i} | named)
        answer = {"object": "list", "model": body.get("model", "org/tiny")}
        answer["data"] = self.change(data)
        if self.counts:
            n = sum(map(len, texts))
            usage = {"prompt_tokens": n, "total_tokens": n, "completion_tokens": 0}
            answer["usage"] = usage
        return answer

    def read_text(self, text, body):
        if isinstance(text, str):
            return self.ids(text, body.get("add_special_tokens", True))
        return [self.tokenizer.bos_token_id, *text] if self.bos else text


@dataclass
class Sglang(Served):
    """SGLang's /classify: raw values in `embedding`, in the order of the texts."""

    def __call__(self, path, body, headers):
        if path == "/get_model_info":
            return {"model_path": "org/tiny"}
        assert path == "/classify"
        assert "model" not in body
        rows = []
        for ids in body["input_ids"]:
            counts = {"prompt_tokens": len(ids)}
            rows.append({"embedding": self.values(ids), "meta_info": counts})
        return self.change(rows)


@dataclass
class Tei(Served):
    """TEI's /predict: a list of texts is one pair, a sigmoid unless `raw_scores`,
    special tokens of its own.
    """

    def __call__(self, path, body, headers):
        if path == "/info":
            return {"model_id": "org/tiny"}
        assert path == "/predict"
        assert body["raw_scores"]
        assert body["truncate"] is False
        rows = []
        for (text,) in body["inputs"]:  # a batch, not a pair
            labels = []
            for i, value in enumerate(self.values(self.ids(text, True))):
                labels.append({"label": f"LABEL_{i}", "score": value})
            rows.append(sorted(labels, key=lambda label: -label["score"]))
        return self.change(rows)


@dataclass
class OpenRlhf(Served):
    """OpenRLHF's /get_reward: text without special tokens of the server's."""

    def __call__(self, path, body, headers):
        assert path == "/get_reward"
        rewards = [self.values(self.ids(text, False))[0] for text in body["query"]]
        return {"rewards": self.change(rewards), "extra_logs": {}}


@dataclass
class Triton(Served):
    """NeMo's reward server at the level of Triton's HTTP protocol, binary tensors
    included.

    `score(text, add_eos)`: the attributes of one text. `longest`: characters from which
    on a text is `exceeded`.
    """

    def __call__(self, path, body, headers):
        from tritonclient.utils import deserialize_bytes_tensor

        assert path == "/v2/models/reward_model/infer", path
        offset = int(headers["inference-header-content-length"])
        tensors = {}
        for tensor in json.loads(body[:offset])["inputs"]:
            end = offset + tensor["parameters"]["binary_data_size"]
            form = tensor["shape"], tensor["datatype"]
            tensors[tensor["name"]] = form, body[offset:end]
            offset = end
        form, data = tensors["sentences"]
        texts = [text.decode() for text in deserialize_bytes_tensor(data).tolist()]
        assert form == ([len(texts), 1], "BYTES")
        form, data = tensors["add_EOS"]
        assert form == ([len(texts), 1], "BOOL")

        rows = []
        for text, eos in zip(texts, data, strict=True):
            rows.append((self.score(text, bool(eos)), len(text) > self.longest))
        rewards, exceeded = zip(*self.change(rows), strict=True)
        outputs = []
        content = b""
        for name, kind, values in (
            ("rewards", "FP32", np.array(rewards, np.float32)),
            ("exceeded", "BOOL", np.array(exceeded)[:, None]),
        ):
            size = {"binary_data_size": values.nbytes}
            output = {"name": name, "datatype": kind, "shape": list(values.shape)}
            outputs.append(output | {"parameters": size})
            content += values.tobytes()
        model = {"model_name": "reward_model", "model_version": "1"}
        head = json.dumps(model | {"outputs": outputs}).encode()
        headers = {
            "inference-header-content-length": len(head),
            "content-type": "application/octet-stream",
        }
        return 200, headers, head + content
