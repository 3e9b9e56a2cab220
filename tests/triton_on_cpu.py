"""Inductor's own Triton template for flex attention on a CPU, by Triton's interpreter.

Private doors of torch and of triton: only with the releases that `make test-long`
installs. float32 is exact there; the interpreter's `dot` in bfloat16 and the cap on
logits (Gemma 2) are known to be wrong or missing, and are left out.
"""

import importlib
import inspect
import os
import re


def enable():
    """To be called before anything is compiled, with TRITON_INTERPRET=1 set before
    torch is imported.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("set TRITON_INTERPRET=1 before torch is imported")
    import torch._dynamo.device_interface as interface
    import torch._inductor.config as config
    import torch._inductor.lowering  # noqa: F401
    import triton

    config.cpu_backend, config.compile_threads = "triton", 1
    interface.CpuInterface.raise_if_triton_unavailable = staticmethod(
        lambda *_, **__: None
    )
    interface.CpuInterface.is_triton_capable = staticmethod(lambda *_, **__: True)
    lower_cpus_as_gpus()
    triton.runtime.driver.set_active(Driver())


def lower_cpus_as_gpus():
    """The lowering sends CPUs to a template of C++: compile it again without that
    branch.
    """
    module = importlib.import_module("torch._inductor.kernel.flex.flex_attention")
    source = "".join(inspect.findsource(module)[0])
    body = source[
        source.index("@register_lowering(torch.ops.higher_order.flex_attention,") :
    ]
    assert body.count('query.get_device().type == "cpu"') == 1
    body = body.replace('query.get_device().type == "cpu"', "False")
    start = body.index("def flex_attention(")
    ends = [
        match.start()
        for match in re.finditer(r"\n(?=def |@|class |# -)", body)
        if match.start() > start
    ]
    exec(
        compile(body[: ends[0]], f"{module.__file__} (CPUs as GPUs)", "exec"),
        module.__dict__,
    )


class Driver:
    """What Triton asks of a GPU's driver."""

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 80, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0

    def get_device_interface(self):
        import torch

        return torch.cpu

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")
