import random
from collections.abc import Callable, Mapping, Sequence

import pytest

from runbook import params
from runbook.cells import Cell

Ratios = Mapping[str, Mapping[int, float]]


def _rule(mix: Mapping[int, float], **terms) -> params.Choose:
    shares = [params.MixShare(concurrency=c, share=float(s)) for c, s in mix.items()]
    return params.Choose(mix=shares, **terms)


def _session(
    ratios: Ratios, blocks: int = 3, sd: float = 0.0, seed: int = 0, base: Sequence[float] = ()
) -> list[Cell]:
    """A run in which each configuration is ``ratio`` times the baseline, with noise ``sd``."""
    rng = random.Random(seed)
    cells, life = [], 0
    concurrencies = list(next(iter(ratios.values())))
    for block in range(1, blocks + 1):
        for config in ["baseline", *ratios]:
            life += 1
            for at, concurrency in enumerate(concurrencies):
                ratio = ratios[config][concurrency] if config in ratios else 1.0
                figure = (base[at] if base else 20.0) * ratio * (1 + rng.gauss(0, sd))
                cells.append(
                    Cell(config, life, block, concurrency, requests=10, output_tok_s=figure)
                )
    return cells


@pytest.fixture(scope="session")
def rule() -> Callable[..., params.Choose]:
    return _rule


@pytest.fixture(scope="session")
def session() -> Callable[..., list[Cell]]:
    return _session


@pytest.fixture(scope="session")
def published() -> list[Cell]:
    """The figures that were published for production: single ones, by concurrency."""
    baseline = {1: 92.7, 30: 689.4, 100: 773.1}
    topk1 = {1: 86.8, 30: 759.3, 100: 775.0}
    both = {"baseline": baseline, "eagle3-topk1-spec-v2": topk1}
    return [
        Cell(config, 1, 1, concurrency, output_tok_s=figure)
        for config, figures in both.items()
        for concurrency, figure in figures.items()
    ]


@pytest.fixture(scope="session")
def production(rule) -> params.Choose:
    return rule(
        {1: 15, 30: 60, 100: 25},
        limits=params.Limits(max_regress={"1": 0.10}),
        expected="eagle3-topk1-spec-v2",
        prefer=["eagle3-topk1-spec-v2"],
    )
