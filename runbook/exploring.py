"""The choice under other terms: another mix, margin or limit, answered by the rule itself.

In JupyterLab sliders redraw answer and figure at once; elsewhere the figure of the declared terms
is shown. Nothing here changes the decision of the run.
"""

from __future__ import annotations

import asyncio
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook import choose, intervals, params, progress
from runbook.cells import Cell
from runbook.checks import counted
from runbook.notebook import Work
from runbook.publish.artefacts import Artefacts
from runbook.publish.drawing import cells_source
from runbook.publish.figure import Figure
from runbook.publish.mix_figure import Gain, MixSweep, choice_by_mix

#: So long a drawing waits for the steps of a slider that follow one another.
_SETTLE_S = 0.03

#: Shares of time at which the rule is asked: every 2.5 %.
_SHARES = tuple(step / 40 for step in range(41))


@dataclass(frozen=True)
class Terms:
    """What the sliders say. ``shares`` need not sum to 1; ``ttft_p99_ms`` ``None``: no limit."""

    shares: Mapping[choose.Point, float]
    margin: float
    max_regress: Mapping[int, float]
    ttft_p99_ms: float | None


@dataclass(frozen=True)
class Question:
    """The measured cells, the declared rule, and the configurations in their order."""

    cells: Sequence[Cell]
    rule: params.Choose
    names: tuple[str, ...]

    @property
    def points(self) -> tuple[choose.Point, ...]:
        """Where figures were measured: concurrency and context, ascending."""
        return choose.points_of(self.cells)

    def declared(self) -> Terms:
        """The terms of the parameters; the shares sum to 1 and name every measured point."""
        decision = choose.decide(self.cells, self.rule, self.names)
        found = {weight.point: weight.share for weight in decision.weights}
        limits = self.rule.limits
        return Terms(
            {point: found.get(point, 0.0) for point in self.points},
            self.rule.margin,
            {int(at): most for at, most in limits.max_regress.items()},
            limits.ttft_p99_ms,
        )

    def under(self, terms: Terms) -> Question:
        """The same figures under other terms."""
        limits = self.rule.limits.model_copy(
            update={
                "max_regress": {str(at): most for at, most in terms.max_regress.items()},
                "ttft_p99_ms": terms.ttft_p99_ms,
            }
        )
        changed = {"mix": _mix(terms.shares), "margin": terms.margin, "limits": limits}
        return Question(self.cells, self.rule.model_copy(update=changed), self.names)

    def decide(self) -> choose.Decision:
        """The rule's decision."""
        return choose.decide(self.cells, self.rule, self.names)


def sweep(question: Question, terms: Terms) -> MixSweep:
    """Ask the rule at every share of time spent at the lowest concurrency."""
    first = next(iter(terms.shares))
    shares = _SHARES if len(terms.shares) > 1 else (1.0,)
    asked = [question.under(_moved(terms, first, share)) for share in shares]
    others = [name for name in question.names if name != params.BASELINE]
    total = math.fsum(terms.shares.values())
    return MixSweep(
        first.label,
        shares,
        {name: tuple(_gain(one, name) for one in asked) for name in others},
        tuple(choose.ask(one.cells, one.rule, one.names).choice for one in asked),
        terms.shares[first] / total,
        terms.margin,
        f"{cells_source(question.cells)}; the rule asked at {counted(len(shares), 'share')}",
    )


def _moved(terms: Terms, first: choose.Point, share: float) -> Terms:
    """``share`` of the time at ``first``; the others keep their proportion to one another."""
    others = {point: weight for point, weight in terms.shares.items() if point != first}
    total = math.fsum(others.values())
    rest = {
        point: (1 - share) * (weight / total if total else 1 / len(others))
        for point, weight in others.items()
    }
    return Terms({first: share, **rest}, terms.margin, terms.max_regress, terms.ttft_p99_ms)


def _gain(question: Question, config: str) -> Gain | None:
    """The gain of one configuration in the mix asked for, with the ends of its interval."""
    scores = choose.block_scores(question.cells, question.rule, config)
    if not scores:
        return None
    blocks = len({cell.block for cell in question.cells})
    confidence = intervals.look_confidence(question.rule.looks, blocks)
    estimate = intervals.mean_interval(list(scores), confidence)
    if estimate.low is None or estimate.high is None:
        return math.exp(estimate.mean), None, None
    return math.exp(estimate.mean), math.exp(estimate.low), math.exp(estimate.high)


def _mix(shares: Mapping[choose.Point, float]) -> list[params.MixShare]:
    return [
        params.MixShare(
            concurrency=point.concurrency, context_tokens=point.context_tokens, share=share
        )
        for point, share in shares.items()
    ]


# --- in the notebook ------------------------------------------------------------------------


def explore(work: Work) -> Any:
    """Sliders for mix, margin and limits in JupyterLab; elsewhere the figure of the declared mix.

    Raises ``BadInput`` where the figures and the parameters do not fit.
    """
    found = Artefacts.of(work.folder)
    question = Question(found.cells, found.run.params.choose, found.names)
    figure = choice_by_mix(sweep(question, question.declared()), question.names)
    figure.save(work.folder)
    if progress.in_jupyterlab():
        try:
            return Sliders(question).box
        except ImportError:
            pass
    return figure


def answer(question: Question, terms: Terms) -> tuple[str, Figure]:
    """What the rule says under ``terms``: as HTML with every name escaped, and as a figure."""
    decision = question.under(terms).decide()
    head = html.escape(decision.choice or decision.status.replace("_", " "))
    reason = decision.reason.replace("the declared mix", "this mix")
    lines = [f"<b>{head}</b>: {html.escape(reason)}"]
    lines += [f"Costs: {html.escape('; '.join(decision.costs))}."] if decision.costs else []
    figure = choice_by_mix(sweep(question.under(terms), terms), question.names)
    return "<br>".join(lines), figure


class Sliders:
    """The sliders, the answer and the figure; every move asks the rule again. Moves that come while
    it is drawn are answered together, by where the sliders are then."""

    def __init__(self, question: Question) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self.question = question
        self.declared = question.declared()
        self._make = ipywidgets
        self.shares = {
            point: self._slider(f"share {point.label}, %", 100 * share, 100, 1)
            for point, share in self.declared.shares.items()
        }
        self.margin = self._slider("margin, %", 100 * self.declared.margin, 20, 0.5)
        self.losses = {
            at: self._slider(
                f"loss C={at} up to, %", 100 * self.declared.max_regress.get(at, 1.0), 100, 1
            )
            for at in dict.fromkeys(point.concurrency for point in self.declared.shares)
        }
        self.ttft = self._ttft_slider()
        self.said = ipywidgets.HTML()
        self.picture = ipywidgets.Image(format="png", width=720)
        self.back = ipywidgets.Button(description="as declared")
        self.back.on_click(lambda _button: self._set(self.declared))
        self.box = self._laid_out()
        self._waits = False
        self._redraw()

    def terms(self) -> Terms:
        """What the sliders say now; a loss of up to 100 % and the longest wait are no limit."""
        losses = {at: slider.value / 100 for at, slider in self.losses.items()}
        ttft = None if self.ttft is None or self.ttft.value >= self.ttft.max else self.ttft.value
        return Terms(
            {point: slider.value / 100 for point, slider in self.shares.items()},
            self.margin.value / 100,
            {at: most for at, most in losses.items() if most < 1},
            ttft,
        )

    def _on_move(self, _change: object) -> None:
        """A slider says each of its steps: those that wait already need one drawing."""
        if self._waits:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._redraw()
            return
        self._waits = True
        loop.call_later(_SETTLE_S, self._redraw)

    def _redraw(self) -> None:
        self._waits = False
        terms = self.terms()
        if math.fsum(terms.shares.values()) <= 0:
            self.said.value = "No time is spent anywhere: give one concurrency a share."
            return
        self.said.value, figure = answer(self.question, terms)
        self.picture.value = figure.png

    def _set(self, terms: Terms) -> None:
        for point, share in terms.shares.items():
            self.shares[point].value = 100 * share
        self.margin.value = 100 * terms.margin
        for at, slider in self.losses.items():
            slider.value = 100 * terms.max_regress.get(at, 1.0)
        if self.ttft is not None:
            self.ttft.value = terms.ttft_p99_ms or self.ttft.max

    def _slider(self, text: str, value: float, most: float, step: float, least: float = 0.0) -> Any:
        slider = self._make.FloatSlider(
            value=value,
            min=least,
            max=max(most, value),
            step=step,
            description=text,
            readout_format=".0f" if step >= 1 else ".1f",
            style={"description_width": "11em"},
            layout={"width": "28em"},
        )
        slider.observe(self._on_move, names="value")
        return slider

    def _ttft_slider(self) -> Any | None:
        known = [one.ttft_p99_ms for one in self.question.cells if one.ttft_p99_ms is not None]
        if not known:
            return None
        most = max(1.05 * max(known), self.declared.ttft_p99_ms or 0)
        asked = self.declared.ttft_p99_ms or most
        return self._slider("TTFT p99 up to, ms", asked, most, most / 100, least=most / 100)

    def _laid_out(self) -> Any:
        column: Callable[[list[Any]], Any] = self._make.VBox
        limits = [self.margin, *self.losses.values(), *([self.ttft] if self.ttft else [])]
        controls = [column([*self.shares.values(), self.back]), column(limits)]
        return column([self._make.HBox(controls), self.said, self.picture])
