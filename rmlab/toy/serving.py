"""A reward model behind a server on this machine, with the defaults of vLLM."""

import json
import math
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Required, TypedDict

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class RequestBody(TypedDict, total=False):
    """What the server reads of a request: texts or token ids, and two switches."""

    input: Required[list[str | list[int]]]
    add_special_tokens: bool
    use_activation: bool


def serve(
    folder: str | Path,
    *,
    double_bos: bool = False,
    sigmoid: bool = False,
    dtype: str = "float32",
) -> "Served":
    """Serve a reward model on this machine as vLLM does.

    It takes `POST /classify` with texts or token ids, and answers with a sigmoid unless
    the request says `use_activation: false`. transformers computes the scores, one text
    at a time.

    Parameters
    ----------
    folder : str or Path
        The model.
    double_bos : bool
        A fault to try things with: write a second beginning token before every text,
        and report no token counts.
    sigmoid : bool
        A fault to try things with: ignore `use_activation`.
    dtype : str
        "float32", or "bfloat16" for half precision.

    Returns
    -------
    Served
        The running server, at its `.url`. Close it with `.close()`, or use it in a
        `with` statement.
    """
    return Served(Path(folder), double_bos, sigmoid, dtype)


class Served(ThreadingHTTPServer):
    """A running server; `serve` starts it."""

    def __init__(
        self, folder: Path, double_bos: bool, sigmoid: bool, dtype: str
    ) -> None:
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.name = folder.name
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        loaded = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=getattr(torch, dtype)
        )
        self.model: PreTrainedModel = loaded.eval()
        self.double_bos = double_bos
        self.sigmoid = sigmoid
        self.lock = Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.shutdown()
        self.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def classify(self, body: RequestBody) -> dict[str, object]:
        """Return the reply to a request."""
        special = body.get("add_special_tokens", True)
        is_raw = body.get("use_activation", True) is False and not self.sigmoid

        rows = []
        n_tokens = 0
        for i, text in enumerate(body["input"]):
            ids = self._tokenize(text, special)
            n_tokens += len(ids)
            probs = self._compute_logits(ids)
            if not is_raw:
                probs = [1 / (1 + math.exp(-logit)) for logit in probs]
            rows.append({"index": i, "probs": probs})

        reply: dict[str, object] = {"data": rows}
        if not self.double_bos:
            reply["usage"] = {"prompt_tokens": n_tokens}
        return reply

    def _tokenize(self, text: str | list[int], special: bool) -> list[int]:
        ids = text
        if isinstance(text, str):
            ids = self.tokenizer(text, add_special_tokens=special)["input_ids"]
        if self.double_bos:
            return [self.tokenizer.bos_token_id, *ids]
        return [*ids]

    def _compute_logits(self, ids: list[int]) -> list[float]:
        import torch

        with self.lock, torch.inference_mode():
            logits = self.model(torch.tensor([ids])).logits[0]
        row: list[float] = logits.double().tolist()
        return row


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Served

    def do_GET(self) -> None:
        """Reply with the server's model."""
        self._reply({"data": [{"id": self.server.name}]})

    def do_POST(self) -> None:
        """Reply with scores."""
        n_bytes = int(self.headers["content-length"])
        request = json.loads(self.rfile.read(n_bytes))
        self._reply(self.server.classify(request))

    def _reply(self, reply: dict[str, object]) -> None:
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print no line per request."""
