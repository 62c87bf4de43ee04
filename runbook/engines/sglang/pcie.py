"""What SGLang offers for collectives, and what of it applies where cards speak over PCIe alone.

Read in the source of the releases named; nothing of it was run on such a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from runbook.checks import Check
from runbook.engines.sglang.case import Case, Finding, grouped
from runbook.params import Params

PCIE = "sglang_pcie"


@dataclass(frozen=True)
class Offer:
    """One option (``--...``) or variable, whether it does something there, and where that was
    read. ``releases`` that have it, where not all of those read do."""

    name: str
    applies: bool
    what: str
    read_in: str
    releases: str = ""


OFFERS = (
    Offer(
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE",
        True,
        "an all-reduce over PCIe, with a FlashInfer that has it; not for deterministic inference",
        "0.5.21 to 0.5.23",
        ">=0.5.21",
    ),
    Offer(
        "--disable-custom-all-reduce",
        False,
        "only silences a warning: custom all-reduce is off by itself with more than two cards",
        "0.5.23",
    ),
    Offer(
        "--flashinfer-allreduce-fusion-backend", False, "SM90 and SM10x only, not SM120", "0.5.23"
    ),
    Offer("--enable-flashinfer-allreduce-fusion", False, "SM90 and SM10x only", "0.5.23"),
    Offer("--enable-torch-symm-mem", False, "its help names SM90 and SM100 only", "0.5.23"),
    Offer("--enable-symm-mem", False, "made for NVLink switches", "0.5.23"),
    Offer("--enable-nccl-nvls", False, "made for NVLink switches", "0.5.23"),
)


#: An option, the variables it must not stand beside where their value holds a text, and why.
PAIRS = (
    (
        "--enable-pcie-oneshot-allreduce",
        ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        "expandable_segments:true",
        "reported to end the server in its first all-reduce",
    ),
    (
        "--enable-deterministic-inference",
        ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE",),
        "",
        "this all-reduce is not for deterministic inference (read in 0.5.21 to 0.5.23)",
    ),
)


def check_pcie(params: Params, cases: Sequence[Case], links: str | None) -> list[Check]:
    """For three cards or more on PCIe alone: what is offered, and what was asked for of what does
    nothing there. ``links``: the class of topology that was seen."""
    if params.stack.gpus < 3 or params.stack.topology == "nvlink":
        return []
    if links == "nvlink":
        found = "the cards are joined by NVLink: this is not the PCIe-only host described"
        fix = "set stack.topology: nvlink, and measure anew what was chosen for PCIe alone"
        return [Check(PCIE, "warn", found, "cards on PCIe alone", fix)]
    said = f"applies: {say_offers(True)}. Only looks as if: {say_offers(False)}"
    return [*grouped(PCIE, cases, judge_offers), Check(PCIE, "pass", said)]


def judge_offers(case: Case) -> Iterator[Finding]:
    """Options that were asked for and do nothing without NVLink, or not in this release."""
    for offer in OFFERS:
        if not (case.options.has(offer.name) or _is_on(case.env.get(offer.name))):
            continue
        fix = f"take {offer.name} out, and measure with and without it"
        if not offer.applies:
            found = f"{offer.name} without NVLink: {offer.what} (read in {offer.read_in})"
            yield Finding("warn", found, "what applies to PCIe", fix)
        elif case.release and not SpecifierSet(offer.releases).contains(str(case.version)):
            found = f"{offer.name} does nothing on SGLang {case.version}"
            yield Finding("warn", found, f"SGLang {offer.releases}", fix)

    for option, variables, text, why in PAIRS:
        for name in variables if case.options.has(option) else ():
            value = case.env.get(name)
            if _is_on(value) and text in str(value).lower().replace(" ", ""):
                found, fix = f"{option} with {name}={value}: {why}", f"take {name} out of env"
                yield Finding("warn", found, "one of the two", fix)


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() not in ("", "0", "false", "no", "n")


def say_offers(applying: bool) -> str:
    """The offers that apply, or those that only look as if, each with where that was read."""
    told = [offer for offer in OFFERS if offer.applies == applying]
    return "; ".join(f"{offer.name}: {offer.what} ({offer.read_in})" for offer in told)
