"""OpenRLHF's /get_reward."""

from rmlab.servers.http import Json, Reply
from rmlab.servers.kinds.base import Payloads, Scored, ServerKind


class OpenRlhf(ServerKind):
    """OpenRLHF's /get_reward, which takes text and cuts it silently."""

    name = "openrlhf"
    path = "/get_reward"
    length_option = "--max_len"

    def body(self, texts: Payloads, model: str | None) -> Json:
        """Return the JSON that is posted."""
        return {"query": list(texts)}

    def read(self, reply: Reply) -> Scored:
        """Read one reward per text."""
        return Scored(reply.json()["rewards"])
