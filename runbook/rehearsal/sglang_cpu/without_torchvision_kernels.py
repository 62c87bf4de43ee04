"""Lets SGLang import torchvision beside a CPU build of torch: PyPI's torchvision is built for CUDA,
and what it registers about its kernels at import fails where these are missing. No text model uses
them."""

import sys
import types

sys.modules.setdefault(
    "torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations")
)
