"""SGLang's /classify."""

from rmlab.servers.http import Json, Reply
from rmlab.servers.kinds.base import Payloads, Scored, ServerKind


class Sglang(ServerKind):
    """SGLang's /classify, whose rows come in the order of the texts."""

    name = "sglang"
    path = "/classify"
    takes_ids = True
    model_path = "/get_model_info"
    model_keys = ("model_path",)

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        return {"input_ids": list(texts)}

    def read(self, reply: Reply) -> Scored:
        """Read one row per text."""
        rows = reply.json()
        counts = [row.get("meta_info", {}).get("prompt_tokens", 0) for row in rows]
        return Scored([row["embedding"] for row in rows], sum(counts))
