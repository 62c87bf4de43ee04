"""What the configuration files of target and draft say that speculation depends on. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KIMI_K25 = re.compile(r"Kimi_?K2_?5", re.IGNORECASE)
_MLA_DRAFT = re.compile(r"MLA|Deepseek|Kimi", re.IGNORECASE)


@dataclass(frozen=True)
class ModelFacts:
    """Of one model; ``None`` is unknown (its ``config.json`` was not there to be read)."""

    architectures: tuple[str, ...] | None = None
    quantized: bool | None = None
    mla: bool | None = None

    @property
    def known(self) -> bool:
        """Whether its configuration was read."""
        return self.architectures is not None

    @property
    def kimi_k25(self) -> bool:
        """Whether it is Kimi-K2.5, whose EAGLE-3 hooks came with a release."""
        return any(_KIMI_K25.search(name) for name in self.architectures or ())

    @property
    def eagle3(self) -> bool:
        """Whether it is a draft of EAGLE-3."""
        return any("eagle3" in name.lower() for name in self.architectures or ())

    @property
    def mla_draft(self) -> bool:
        """Whether it is a draft with latent attention, by its class or its settings."""
        names = self.architectures or ()
        return self.known and (bool(self.mla) or any(_MLA_DRAFT.search(name) for name in names))


def read_model(config: Mapping[str, Any] | None) -> ModelFacts:
    """The facts of a ``config.json``, whole or as the probe tells it (``quantized`` instead of
    the settings); the text part of a multimodal model counts too."""
    if config is None:
        return ModelFacts()
    nested = config.get("text_config")
    parts = [config, nested] if isinstance(nested, Mapping) else [config]
    names = config.get("architectures")
    return ModelFacts(
        architectures=tuple(map(str, names)) if isinstance(names, list) else (),
        quantized=any(p.get("quantization_config") or p.get("quantized") for p in parts),
        mla=any(part.get("kv_lora_rank") for part in parts),
    )
