"""A scorer that asks a server; docs/write_a_scorer.md explains it."""

import hashlib
import json
import time
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


class HttpScorer:
    """Posts {"prompts": [...], "responses": [...]} and expects {"scores": [...]}."""

    def __init__(
        self, url, *, name, version, at_once=16, tries=6, pause=0.5, timeout=60.0
    ):
        self.url, self.name, self.version = url, name, version
        self.at_once, self.tries, self.pause, self.timeout = (
            at_once,
            tries,
            pause,
            timeout,
        )
        self.fingerprint = hashlib.sha256(f"{url} {version}".encode()).hexdigest()

    def __call__(self, prompts, responses):
        scores = []
        for start in range(0, len(responses), self.at_once):
            part = slice(start, start + self.at_once)
            scores += self._send(
                {"prompts": prompts[part], "responses": responses[part]}
            )
        return scores

    def provenance(self):
        return {"url": self.url, "version": self.version}

    def _send(self, texts):
        """The scores of some texts; a request that may succeed later is repeated, each
        time after a longer pause.
        """
        request = Request(
            self.url, json.dumps(texts).encode(), {"Content-Type": "application/json"}
        )
        for left in reversed(range(self.tries)):
            try:
                with urlopen(request, timeout=self.timeout) as answer:
                    scores = json.load(answer)["scores"]
                break
            except HTTPError as error:
                if not left or (error.code != 429 and error.code < 500):
                    raise RuntimeError(
                        f"{self.url}: {error.code} {error.read().decode()[:200]}"
                    ) from error
            except (URLError, TimeoutError, ConnectionError) as error:
                if not left:
                    raise RuntimeError(
                        f"{self.url}: no answer after {self.tries} tries ({error})"
                    ) from error
            time.sleep(self.pause * 2 ** (self.tries - 1 - left))
        if len(scores) != len(texts["responses"]):
            n_responses = len(texts["responses"])
            raise RuntimeError(
                f"{self.url}: {len(scores)} scores for {n_responses} responses"
            )
        return scores
