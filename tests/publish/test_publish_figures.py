"""Figures: whole PNGs, said in words, equal for equal data, one colour for one configuration."""

import dataclasses
import io
import json
import math
import statistics
import subprocess
import sys
import warnings

import matplotlib.image
import pytest
from synthetic_run import decision, measured_cells, requests

from runbook.errors import NotHere
from runbook.publish import figures, run_figures
from runbook.publish.drawing import cells_source, paired_gains, styles

ORDER = ("baseline", "ngram-wide", "ngram-lean")


def records():
    return [
        json.loads(line) | {"ttft_ms": 200.0 + at % 7, "tpot_ms": 40.0 + at % 5}
        for at, line in enumerate(requests().splitlines()[:-1])
    ]


def draw(name, cells=None):
    cells = measured_cells() if cells is None else cells
    if name == "ratio":
        return figures.ratio(cells, decision(), ORDER)
    if name == "latency":
        return figures.latency(records() if cells else [], ORDER)
    return getattr(figures, name)(cells, ORDER)


NAMES = ["throughput", "ratio", "user_speed", "latency", "acceptance", "run_order"]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_a_picture_with_words(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(name)
    pixels = matplotlib.image.imread(io.BytesIO(figure.png))
    assert pixels.shape[1] == 1080
    assert len({tuple(pixel) for pixel in pixels[::9, ::9].reshape(-1, 4)}) > 5
    assert "C=8" in figure.alt or name == "run_order"
    assert figure.alt.isprintable()


@pytest.mark.parametrize("name", NAMES)
def test_without_data_it_says_so(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(name, [])
    words = ("no usable", "nothing", "not known", "no request")
    assert name == "ratio" or any(word in figure.alt for word in words)


def test_next_to_no_acceptance_is_drawn_at_the_foot():
    cells = [dataclasses.replace(one, accept_length=1.003) for one in measured_cells()]
    pixels = matplotlib.image.imread(io.BytesIO(draw("acceptance", cells).png))[..., :3]
    rows = ((pixels.max(-1) - pixels.min(-1)) > 0.3).any(-1).nonzero()[0] / len(pixels)
    assert max(rows) > 0.6 and not [row for row in rows if 0.15 < row < 0.6]


def test_equal_data_give_equal_bytes():
    assert draw("throughput").png == draw("throughput").png


def test_jupyter_gets_png_name_and_words():
    figure = draw("throughput")
    data, metadata = figure._repr_mimebundle_()
    assert data["image/png"].startswith("iVBOR")
    assert metadata["runbook"] == {"figure": "throughput_by_concurrency.png", "alt": figure.alt}
    assert metadata["image/png"]["width"] == 540


def test_a_configuration_keeps_its_colour_where_others_are_absent():
    everything, few = styles(ORDER, ORDER), styles(["ngram-lean"], ORDER)
    assert everything["ngram-lean"] == few["ngram-lean"]
    assert len({style.colour for style in everything.values()}) == 3
    assert len({style.marker for style in everything.values()}) == 3


def test_more_configurations_than_colours_are_no_error():
    names = [f"c{number}" for number in range(20)]
    assert set(styles(names)) == {"baseline", *names}


def test_a_void_cell_is_left_out_and_counted():
    assert sum(not cell.usable for cell in measured_cells()) == 1
    assert "ngram-wide 26.23 at C=8" in draw("throughput").alt


def test_blocks_stand_beside_every_gain_also_that_of_the_mix():
    cells, found = measured_cells(), decision()
    for effect in found["effects"]:
        weights = [(one["point"], one["share"]) for one in found["weights"]]
        gains = paired_gains(cells, effect["config"], weights)
        assert len(gains) == effect["blocks"]
        mean = math.exp(statistics.fmean(math.log1p(gain / 100) for gain in gains))
        assert mean == pytest.approx(effect["ratio"])


def test_of_a_single_block_no_drift_is_claimed():
    alone = figures.run_order([cell for cell in measured_cells() if cell.block == 1], ORDER)
    assert alone.alt.endswith("each was measured once: drift cannot be seen")
    assert "largest" in draw("run_order").alt
    assert "cannot" not in draw("run_order").alt


def test_one_is_not_said_as_many():
    (cell,) = measured_cells()[:1]
    assert cells_source([cell]) == "cells.csv, 1 cell in 1 block"
    assert cells_source(measured_cells()).startswith("cells.csv, 24 cells in 4 blocks")


def test_saved_under_its_stable_name(run):
    for path in (run.path / "figures").glob("*.png"):
        path.unlink()
    for name in NAMES:
        getattr(run_figures, name)(run.path)
    assert sorted(path.name for path in (run.path / "figures").iterdir()) == [
        "acceptance_length.png",
        "latency_distributions.png",
        "ratio_to_baseline.png",
        "run_order.png",
        "throughput_by_concurrency.png",
        "user_speed_by_throughput.png",
    ]


def test_not_saved_where_the_run_is_not_to_be_touched(run):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    assert run_figures.throughput(run.path, keep=False).png.startswith(b"\x89PNG")
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}


def test_latency_leaves_out_failed_requests_and_abandoned_lives(run):
    raw = json.loads(requests().splitlines()[0])
    failed = {**raw, "first_token_s": 9.0, "error_kind": "cut"}
    elsewhere = {**raw, "first_token_s": 9.0, "life": 99, "cell": "life99-c1"}
    rows = "".join(json.dumps(row) + "\n" for row in (raw, failed, elsewhere))
    run.write("requests.jsonl", rows)
    alt = run_figures.latency(run.path).alt
    assert "TTFT baseline C=1 200; TPOT baseline C=1 40" in alt


def test_the_ratio_needs_a_decision(run):
    (run.path / "decision.json").unlink()
    with pytest.raises(NotHere, match="no decision"):
        run_figures.ratio(run.path)


def test_no_display_and_no_pyplot_is_touched():
    code = "import sys, runbook.publish.figures; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
