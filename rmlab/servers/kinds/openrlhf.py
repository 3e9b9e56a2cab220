"""OpenRLHF's /get_reward."""

from rmlab.servers.http import Json, Reply
from rmlab.servers.kinds.base import (
    Payloads,
    Scored,
    ServerKind,
    parse_numbers,
    require_rows,
)


class OpenRlhf(ServerKind):
    """OpenRLHF's /get_reward, which takes text and cuts it silently."""

    name = "openrlhf"
    path = "/get_reward"
    length_option = "--max_len"

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        return {"query": list(texts)}

    def read(self, reply: Reply, n_texts: int) -> Scored:
        """Read one reward per text."""
        rewards = require_rows(reply.json()["rewards"], n_texts)
        return Scored([parse_numbers(reward) for reward in rewards])
