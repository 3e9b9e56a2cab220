"""A reward server with NeMo's tensors on a real Triton: `python nemo_server.py PORT ATTRIBUTES`, in pytriton's venv."""

import sys
import zlib

import numpy as np


def ratings(text, add_eos, n):
    """Attributes between 0 and 4 that depend on every letter."""
    return [zlib.crc32(f"{i} {add_eos} {text}".encode()) % 4001 / 1000 for i in range(n)]


def serve(port, n, longest=5000):
    from pytriton.decorators import batch
    from pytriton.model_config import ModelConfig, Tensor
    from pytriton.triton import Triton, TritonConfig

    @batch
    def infer(sentences, add_EOS):
        asked = [(row[0].decode(), bool(eos[0])) for row, eos in zip(sentences, add_EOS, strict=True)]
        rewards = np.array([ratings(text, eos, n) for text, eos in asked], np.float32)
        return {"rewards": rewards, "exceeded": np.array([[len(text) > longest] for text, _ in asked])}

    def truth(name):
        return Tensor(name=name, dtype=np.bool_, shape=(1,))

    ports = TritonConfig(http_port=port, allow_grpc=False, allow_metrics=False)
    with Triton(config=ports) as triton:
        triton.bind(
            model_name="reward_model",
            infer_func=infer,
            inputs=[Tensor(name="sentences", dtype=bytes, shape=(1,)), truth("add_EOS")],
            outputs=[Tensor(name="rewards", dtype=np.float32, shape=(n,)), truth("exceeded")],
            config=ModelConfig(max_batch_size=32),
        )
        triton.serve()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
