"""vLLM's /classify, and /pooling where it has that alone."""

from rmlab.servers.http import Json, Reply
from rmlab.servers.kinds.base import Payloads, Scored, ServerKind


class Vllm(ServerKind):
    """vLLM's /classify."""

    name = "vllm"
    path = "/classify"
    takes_ids = True
    model_path = "/v1/models"
    model_keys = ("data", 0, "id")
    values_key = "probs"

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        return {"input": list(texts), "model": model, "use_activation": False}

    def read(self, reply: Reply) -> Scored:
        """Read rows that say which text each is for: they may come in any order."""
        answer = reply.json()
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(len(rows))):
            raise ValueError("the answers are not numbered as the texts")
        return Scored(
            values=[row[self.values_key] for row in rows],
            tokens=answer.get("usage", {}).get("prompt_tokens", 0),
            model=str(answer.get("model", "")),
        )


class VllmPooling(Vllm):
    """vLLM's /pooling; a server that was started for another task returns values of
    every token.
    """

    name = "vllm-pooling"
    path = "/pooling"
    values_key = "data"

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        return super().body(texts, model) | {"task": "classify"}
