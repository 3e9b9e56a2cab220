"""vLLM's side of vllm_prefixes.py, run with vLLM's own python: a line on standard input
is a round, its answer a line of JSON; a first line says that the model is loaded.
"""

import json
import sys
import time
from pathlib import Path


def main() -> None:
    from vllm import LLM, PoolingParams

    folder, texts, mode = sys.argv[1:]
    sequences = json.loads(Path(texts).read_text())
    model = LLM(
        model=folder,
        runner="pooling",
        dtype="float32",
        max_model_len=4096,
        enable_prefix_caching=mode == "cached",
    )
    prompts = [{"prompt_token_ids": ids} for ids in sequences]
    params = PoolingParams(task="classify", use_activation=False)
    print("{}", flush=True)
    for _ in sys.stdin:
        model.reset_prefix_cache()
        start = time.perf_counter()
        outputs = model.classify(prompts, pooling_params=params, use_tqdm=False)
        answer = {
            "seconds": time.perf_counter() - start,
            "scores": [one.outputs.probs[0] for one in outputs],
            "cached": sum(one.num_cached_tokens for one in outputs),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
