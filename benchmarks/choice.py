"""Simulate the whole rule of choice: how often it errs, and how often it sees a real gain.

    python benchmarks/choice.py [--sessions 2000] [--seed 1]

Each session is a run as the benchmark stage does it: blocks in random order, every life with luck
of its own (``sd``, of the log throughput), a drift of 2 % over the session where said. The cells
go through the same rule as measured ones. Bounded: about a minute.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from runbook import choose, intervals, params
from runbook.cells import Cell

MIX = {1: 0.7, 8: 0.3}
BASE = {1: 17.4, 8: 32.9}
SAME = {"a": (0.0, 0.0), "b": (0.0, 0.0)}
REHEARSAL = {
    "ngram-lean": (math.log(22.6 / 17.4), math.log(29.6 / 32.9)),
    "ngram-wide": (math.log(21.0 / 17.4), math.log(26.2 / 32.9)),
}


def simulate(
    gains: Mapping[str, Sequence[float]], blocks: int, sd: float, drift: float, rng: random.Random
) -> list[Cell]:
    """One run: log gains by configuration and concurrency, ``sd`` of one life's luck."""
    cells: list[Cell] = []
    life = 0
    for block in range(blocks):
        order = ["baseline", *gains]
        rng.shuffle(order)
        for config in order:
            life += 1
            slower = drift * life / (blocks * len(order)) - rng.gauss(0, sd)
            for at, (concurrency, figure) in enumerate(BASE.items()):
                gain = gains[config][at] if config in gains else 0.0
                speed = figure * math.exp(gain - slower + rng.gauss(0, sd / 2))
                cells.append(Cell(config, life, block, concurrency, output_tok_s=speed))
    return cells


def share_of_answers(
    gains: Mapping[str, Sequence[float]],
    rule: params.Choose,
    blocks: int,
    sd: float,
    drift: float,
    sessions: int,
    seed: int,
) -> Counter[str]:
    """How often each answer came."""
    rng = random.Random(seed)
    answers: Counter[str] = Counter()
    for _ in range(sessions):
        answer = choose.ask(simulate(gains, blocks, sd, drift, rng), rule)
        answers[answer.choice or answer.status] += 1
    return answers


def with_looks(
    gains: Mapping[str, Sequence[float]], looks: Sequence[int], sd: float, sessions: int, seed: int
) -> tuple[Counter[str], float]:
    """As ``share_of_answers`` of runs that end at the first look with a clear choice; the mean
    number of blocks they took."""
    rng, rule = random.Random(seed), rule_of(0.02).model_copy(update={"looks": list(looks)})
    answers: Counter[str] = Counter()
    taken = 0
    for _ in range(sessions):
        cells = simulate(gains, looks[-1], sd, 0.02, rng)
        for look in looks:
            answer = choose.ask([cell for cell in cells if cell.block <= look], rule)
            if answer.status == "chosen":
                break
        answers[answer.choice or answer.status] += 1
        taken += look
    return answers, taken / sessions


def show_looks(sessions: int, seed: int) -> None:
    """Runs that may end early: false alarms stay at most 5 %, and what it saves."""
    print("\nlooks (margin 2 %, drift 2 %): % of sessions that choose a or b, mean blocks")
    print(f"{'gain %':>7} {'sd %':>5} {'looks':>10} {'chosen %':>9} {'blocks':>7}")
    for gain, names in ((0.02, SAME), (0.08, {"a": ()}), (0.15, {"a": ()})):
        for sd in (0.01, 0.025):
            for looks in ((3, 5, 8), (8,)):
                gains = dict.fromkeys(names, (math.log1p(gain),) * 2)
                found, blocks = with_looks(gains, looks, sd, sessions, seed)
                shown, chosen = ",".join(map(str, looks)), (found["a"] + found["b"]) / sessions
                row = f"{gain * 100:7.1f} {sd * 100:5.1f} {shown:>10} {chosen * 100:9.1f}"
                print(f"{row} {blocks:7.1f}")


def rule_of(margin: float) -> params.Choose:
    mix = [params.MixShare(concurrency=c, share=share) for c, share in MIX.items()]
    return params.Choose(mix=mix, margin=margin, prefer=["ngram-lean", "ngram-wide"])


def show_false_alarms(sessions: int, seed: int) -> None:
    """Two configurations that gain nothing, or just the margin: any choice of them is an error."""
    print("false alarms: % of sessions that choose a or b (5 at most, both together)")
    print(
        f"{'truth':36} {'blocks':>6} {'sd %':>5} {'drift %':>7} {'false %':>8} {'baseline %':>10}"
    )
    edge = math.log1p(0.02)
    for truth, gain, margin in (
        ("both equal the baseline, margin 2 %", 0.0, 0.02),
        ("both equal the baseline, margin 0", 0.0, 0.0),
        ("both gain just the margin of 2 %", edge, 0.02),
    ):
        for blocks, sd, drift in (
            (3, 0.01, 0.0),
            (3, 0.025, 0.02),
            (5, 0.025, 0.02),
            (8, 0.01, 0.0),
        ):
            gains = dict.fromkeys(SAME, (gain, gain))
            found = share_of_answers(gains, rule_of(margin), blocks, sd, drift, sessions, seed)
            false = (found["a"] + found["b"]) / sessions * 100
            base = found["baseline"] / sessions * 100
            setting = f"{blocks:6} {sd * 100:5.1f} {drift * 100:7.1f}"
            print(f"{truth:36} {setting} {false:8.1f} {base:10.1f}")


def show_power(sessions: int, seed: int) -> None:
    """One configuration with a true gain: how often it is chosen."""
    print("\npower: % of sessions that choose a true gain (margin 2 %, sd of one life, drift 2 %)")
    print(f"{'gain %':>7} {'sd %':>5} " + " ".join(f"{f'{n} blocks':>9}" for n in (3, 5, 8)))
    for gain in (0.05, 0.08, 0.15):
        for sd in (0.01, 0.02, 0.04):
            shares = []
            for blocks in (3, 5, 8):
                gains = {"a": (math.log1p(gain),) * 2}
                found = share_of_answers(gains, rule_of(0.02), blocks, sd, 0.02, sessions, seed)
                shares.append(found["a"] / sessions * 100)
            row = " ".join(f"{share:9.1f}" for share in shares)
            print(f"{gain * 100:7.1f} {sd * 100:5.1f} {row}")


def show_rehearsal(sessions: int, seed: int) -> None:
    """The rehearsal's figures: how quiet it must be for 19 of 20."""
    rule = rule_of(0.02)
    effect = sum(s * g for s, g in zip(MIX.values(), REHEARSAL["ngram-lean"], strict=True))
    truth = f"ngram-lean truly {math.expm1(effect) * 100:+.1f} %"
    print(f"\nrehearsal: {truth}, preferred to ngram-wide; % of sessions that choose it")
    print(
        f"{'sd of the weighted log-ratio':>29} "
        + " ".join(f"{f'{n} blocks':>9}" for n in (3, 4, 5))
    )
    for target in (0.015, 0.025, 0.035, 0.05):
        spread = math.sqrt(2 * (1 + sum(s * s for s in MIX.values()) / 4))
        shares = []
        for blocks in (3, 4, 5):
            found = share_of_answers(REHEARSAL, rule, blocks, target / spread, 0.0, sessions, seed)
            shares.append(found["ngram-lean"] / sessions * 100)
        print(f"{target:29.3f} " + " ".join(f"{share:9.1f}" for share in shares))
    for blocks in (3, 4, 5):
        most = quiet_enough(effect, blocks)
        print(f"{blocks} blocks: 95 % as long as that sd is at most {most:.3f}")


def quiet_enough(effect: float, blocks: int) -> float:
    """The greatest sd of the weighted log-ratio at which the gain is chosen 19 times of 20."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        enough = intervals.power(effect - math.log1p(0.02), middle, blocks) >= 0.95
        low, high = (middle, high) if enough else (low, middle)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    show_false_alarms(given.sessions, given.seed)
    show_power(given.sessions, given.seed)
    show_looks(given.sessions, given.seed)
    show_rehearsal(given.sessions, given.seed)


if __name__ == "__main__":
    main()
