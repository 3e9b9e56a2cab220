"""Text Embeddings Inference's /predict."""

from rmlab.servers.http import Json, Reply
from rmlab.servers.kinds.base import Payloads, Scored, ServerKind


class Tei(ServerKind):
    """Text Embeddings Inference's /predict, which takes text."""

    name = "tei"
    path = "/predict"
    adds_special = True
    sorts_outputs = True
    model_path = "/info"
    model_keys = ("model_id",)

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        # A list of two strings would be one pair: each text is a list of its own.
        inputs = [[text] for text in texts]
        return {"inputs": inputs, "raw_scores": True, "truncate": False}

    def read(self, reply: Reply) -> Scored:
        """Read one row per text; its labels come sorted by score, and their names put
        them in one order.
        """
        values = []
        for row in reply.json():
            labels = sorted(row, key=lambda label: str(label["label"]))
            values.append([label["score"] for label in labels])
        return Scored(values)
