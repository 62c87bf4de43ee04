"""The choice under other terms: the rule is asked, the figure follows, the run stays as it is."""

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "publish"))

from synthetic_run import build_run, measured_cells, parameters

from runbook import choose, exploring, params
from runbook.exploring import Question, Sliders, Terms, explore, sweep
from runbook.publish.figure import Figure

ONE, EIGHT = choose.Point(1), choose.Point(8)


@pytest.fixture
def question():
    names = tuple(one.name for one in parameters().configurations)
    return Question(measured_cells(), parameters().choose, names)


class Folder:
    """All that ``explore`` wants of a notebook's work."""

    def __init__(self, folder):
        self.folder = folder


def test_the_declared_terms_are_those_of_the_parameters(question):
    terms = question.declared()
    assert terms.shares == pytest.approx({ONE: 0.7, EIGHT: 0.3})
    assert (terms.margin, terms.max_regress, terms.ttft_p99_ms) == (0.02, {}, None)
    assert question.under(terms).decide() == question.decide()


def test_the_choice_follows_the_mix(question):
    found = sweep(question, question.declared())
    assert len(found.shares) == len(found.choices) == 41
    assert (found.choices[0], found.choices[-1]) == ("baseline", "ngram-lean")
    assert found.now == pytest.approx(0.7)
    assert "baseline" not in found.gains
    for share, choice in zip(found.shares, found.choices, strict=True):
        mix = [
            params.MixShare(concurrency=1, share=share),
            params.MixShare(concurrency=8, share=1 - share),
        ]
        rule = question.rule.model_copy(update={"mix": mix})
        assert choose.decide(question.cells, rule, question.names).choice == choice


def test_gains_are_the_decisions_own(question):
    terms = question.declared()
    effect = question.decide().effect("ngram-lean")
    at = sweep(question, Terms({ONE: 0.7, EIGHT: 0.3}, 0.02, {}, None))
    assert at.gains["ngram-lean"][28] == pytest.approx((effect.ratio, effect.low, effect.high))
    assert at.shares[28] == pytest.approx(terms.shares[ONE])


def test_spans_are_the_stretches_of_equal_choice(question):
    spans = sweep(question, question.declared()).spans()
    assert (spans[0][0], spans[-1][1]) == (0.0, 1.0)
    assert [span[2] for span in spans] == list(dict.fromkeys(span[2] for span in spans))


def test_a_limit_takes_the_choice_away(question):
    declared = question.declared()
    strict = Terms(declared.shares, declared.margin, {8: 0.05}, None)
    assert question.decide().choice == "ngram-lean"
    assert question.under(strict).decide().choice == "baseline"


def test_one_measured_point_has_no_mix_to_vary(question):
    cells = [cell for cell in question.cells if cell.concurrency == 1]
    mix = [params.MixShare(concurrency=1, share=1.0)]
    alone = Question(cells, question.rule.model_copy(update={"mix": mix}), question.names)
    found = sweep(alone, alone.declared())
    assert found.shares == (1.0,)
    assert found.choices == ("ngram-lean",)
    drawn = exploring.choice_by_mix(found)
    assert drawn.alt == "Choice at C=1: ngram-lean"
    assert (
        drawn.png != exploring.choice_by_mix(dataclasses.replace(found, choices=("baseline",))).png
    )


def test_the_answer_is_escaped(question):
    said, figure = exploring.answer(question, question.declared())
    assert said.startswith("<b>ngram-lean</b>: ")
    evil = Question(
        [cell for cell in question.cells if cell.config != "ngram-wide"],
        question.rule.model_copy(update={"prefer": []}),
        ("baseline", "ngram-lean", "<img src=x>"),
    )
    assert "<img" not in exploring.answer(evil, evil.declared())[0]
    assert "ngram-lean" in figure.alt


def test_headless_it_is_the_figure_in_the_run(tmp_path, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    run = build_run(tmp_path / "run")
    before = (run.path / "decision.json").read_bytes()
    shown = explore(Folder(run.path))
    assert isinstance(shown, Figure)
    assert (run.path / shown.file).read_bytes() == shown.png
    assert (run.path / "decision.json").read_bytes() == before


class TestSliders:
    def test_they_stand_at_the_declared_terms(self, question):
        sliders = Sliders(question)
        assert sliders.terms().shares == pytest.approx(question.declared().shares)
        assert sliders.terms().max_regress == {}
        assert sliders.terms().ttft_p99_ms is None
        assert "ngram-lean" in sliders.said.value

    def test_a_move_redraws_answer_and_figure(self, question):
        sliders = Sliders(question)
        before = sliders.picture.value
        sliders.shares[ONE].value = 0
        assert sliders.said.value.startswith("<b>baseline</b>")
        assert sliders.picture.value != before
        sliders.back.click()
        assert sliders.said.value.startswith("<b>ngram-lean</b>")
        assert sliders.picture.value == before

    def test_limits_exclude(self, question):
        sliders = Sliders(question)
        sliders.losses[8].value = 5
        assert sliders.said.value.startswith("<b>baseline</b>")
        sliders.losses[8].value = 100
        sliders.ttft.value = sliders.ttft.min
        assert sliders.said.value.startswith("<b>not choosable</b>")

    def test_no_time_anywhere_is_said(self, question):
        sliders = Sliders(question)
        for slider in sliders.shares.values():
            slider.value = 0
        assert "No time is spent" in sliders.said.value

    def test_in_jupyterlab_they_are_what_is_shown(self, tmp_path, monkeypatch):
        monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
        shown = explore(Folder(build_run(tmp_path / "run").path))
        assert type(shown).__name__ == "VBox"
        assert (tmp_path / "run" / "figures" / "choice_by_mix.png").is_file()


def test_steps_of_a_slider_that_follow_one_another_are_one_drawing(question, monkeypatch):
    drawn = []
    asked = exploring.answer

    def answer(question, terms):
        drawn.append(terms)
        return asked(question, terms)

    monkeypatch.setattr(exploring, "answer", answer)

    async def drag():
        sliders = Sliders(question)
        for step in range(40):
            sliders.shares[ONE].value = 70 - step
        before = sliders.said.value
        await asyncio.sleep(0.2)
        return sliders, before

    sliders, before = asyncio.run(drag())
    assert [terms.shares[ONE] for terms in drawn] == pytest.approx([0.7, 0.31])
    assert sliders.said.value != before
