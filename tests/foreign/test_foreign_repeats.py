"""Names that collide, rows that repeat, GenAI-Perf, and the terms on the command line."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import cli
from runbook.errors import BadInput
from runbook.foreign import gather
from runbook.foreign.formats import read_text
from runbook.foreign.names import words_of_path
from runbook.foreign.repeats import Placed, each_once
from runbook.verbs.choosing import choose_from_files

CASES = Path(__file__).parents[1] / "cases" / "foreign"
HEADER = "config,concurrency,output_tok_s"


def choose(*words):
    found = CliRunner().invoke(cli.verbs, ["choose", *map(str, words)])
    if isinstance(found.exception, BadInput):
        return 2, str(found.exception)
    return found.exit_code, found.output


def table(tmp_path, *rows, header=HEADER, name="mine.csv"):
    path = tmp_path / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


# --- rows that repeat


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (HEADER, ["a,1,697.3", "a,1,3.0"]),
        (f"{HEADER},life", ["a,8,40,2", "a,8,44,2"]),
        (f"{HEADER},context_tokens", ["a,8,40,1024", "a,8,41,1024"]),
        (f"{HEADER},ttft_p50_ms", ["a,8,40,90", "a,8,40,95"]),
    ],
)
def test_two_values_for_one_place_are_refused_with_their_lines(tmp_path, header, rows):
    path = table(tmp_path, *rows, header=header)
    with pytest.raises(BadInput, match=r"(?s)several values.*line 2: .*line 3: .*life, block"):
        gather([path])


def test_equal_rows_count_once_and_are_told(tmp_path):
    rows = ["baseline,1,90", "a,1,99", "a,1,99", "a,1,99"]
    found = gather([table(tmp_path, *rows)])
    assert len(found.cells) == 2
    assert any("3 times" in note and "line 3" in note and "line 5" in note for note in found.notes)


def test_columns_and_names_tell_apart_what_is_measured_again(tmp_path):
    path = table(tmp_path, "a,1,90,1", "a,1,99,2", header=f"{HEADER},block")
    assert len(gather([path]).cells) == 2
    for run in (1, 2):
        name = f"lean-run{run}.json"
        (tmp_path / name).write_text(unlabelled("topk1-c1.json"))
    found = gather([tmp_path / "lean-run1.json", tmp_path / "lean-run2.json"])
    assert [cell.config for cell in found.cells] == ["lean", "lean"]
    assert any("2 runs of one life (run1, run2): their mean counts" in one for one in found.notes)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["baseline", "a", "b"]),
        st.sampled_from([1, 8]),
        st.integers(1, 3),
        st.integers(50, 150),
    ),
    min_size=1,
    max_size=14,
    unique_by=lambda row: row[:3],
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 10**6))
def test_neither_order_nor_equal_rows_change_the_choice(tmp_path_factory, rows, seed):
    folder = tmp_path_factory.mktemp("rows")
    rng = random.Random(seed)
    again = rng.sample([*rows, rng.choice(rows)], len(rows) + 1)

    def answer(some, name):
        lines = [f"{config},{c},{figure},{life}" for config, c, life, figure in some]
        path = table(folder, *lines, header=f"{HEADER},life", name=name)
        try:
            decision, verdict = choose_from_files([path], None)
        except BadInput as error:
            return str(error)[:12]
        return decision.status, decision.choice, decision.effects, decision.weights, verdict

    assert answer(rows, "one.csv") == answer(again, "two.csv")


@pytest.mark.parametrize("text", [HEADER, HEADER + "\n", HEADER + "\n\n\n"])
def test_a_header_without_rows_is_said(tmp_path, text):
    path = tmp_path / "head.csv"
    path.write_text(text)
    code, said = choose(path)
    assert code == 2 and "a header and no row" in said


def test_the_first_of_equal_rows_is_kept():
    (_, cell), *_ = read_text(f"{HEADER}\na,1,9\n", "x.csv")
    kept, notes = each_once([Placed("x", cell), Placed("y", cell)])
    assert kept == (cell,) and "x, y" in notes[0]


# --- names that collide


def unlabelled(name):
    """The result of a tool that was given no label."""
    value = json.loads((CASES / "vllm" / name).read_text())
    return json.dumps({key: one for key, one in value.items() if key != "label"})


def lay(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        tool = "baseline" if "base" in name else "topk1"
        path.write_text(unlabelled(f"{tool}-c1.json"))


@pytest.mark.parametrize(
    ("files", "configs"),
    [
        (("baseline/g.json", "other/g.json"), {"baseline", "other"}),
        (("baseline/x/g.json", "lean/x/g.json"), {"baseline", "lean"}),
        (("baseline/run.json", "k2/run.json"), {"baseline", "k2"}),
        (("baseline.json", "lean/lean.json"), {"baseline", "lean"}),
    ],
)
def test_files_of_one_name_are_called_as_their_folders(tmp_path, files, configs):
    lay(tmp_path, *files)
    assert {cell.config for cell in gather([tmp_path]).cells} == configs
    assert {cell.config for cell in gather([tmp_path / one for one in files]).cells} == configs


@pytest.mark.parametrize(
    "files",
    [
        ("mon/baseline.json", "tue/baseline.json", "mon/lean.json", "tue/lean.json"),
        ("baseline/low/g.json", "baseline/high/g.json", "lean/low/g.json"),
    ],
)
def test_names_that_folders_do_not_tell_apart_are_refused_by_name(tmp_path, files):
    lay(tmp_path, *files)
    with pytest.raises(BadInput, match="would all be called"):
        gather([tmp_path])


def test_words_of_a_path():
    words = words_of_path(["g-c8-run3", "life2", "lean"], 8)
    assert (words.words, words.life, words.run) == (("g", "lean"), 2, "run3")


# --- GenAI-Perf

METRICS = {
    "request_count": {"unit": "count", "avg": 50},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 41.5},
    "time_to_first_token": {"unit": "us", "p50": 90000, "p99": 120000},
    "inter_token_latency": {"unit": "ms", "p50": 20.5, "p99": 29},
    "output_sequence_length": {"unit": "tokens", "avg": 128},
    "input_sequence_length": {"unit": "tokens", "avg": 512},
}
ANALYZER = {"stimulus": {"concurrency": 6}, "measurement": {"request_count": 50}}


@pytest.mark.parametrize(
    ("config", "concurrency", "timed"),
    [
        ({"perf_analyzer": ANALYZER}, 6, False),
        ({"concurrency": 12, "service_kind": "openai", "request_count": 50}, 12, False),
        ({"concurrency": 2, "subcommand": "profile", "measurement_interval": 10000}, 2, True),
        ({"perf_analyzer": {"stimulus": {"request_rate": 3.0}}}, None, True),
    ],
)
def test_forms_of_genai_perf(config, concurrency, timed):
    (one,) = read_text(json.dumps({**METRICS, "input_config": config}), "p.json")
    assert (one.tool, one.concurrency, one.timed) == ("GenAI-Perf", concurrency, timed)
    assert (one.output_tok_s, one.ttft_p50_ms, one.tpot_p99_ms) == (41.5, 90.0, 29.0)
    assert (one.requests, one.errors, one.output_tokens) == (50, None, 128)
    assert bool(one.void) == (concurrency is None)


def test_folders_of_genai_perf_name_the_configurations(tmp_path):
    for config, factor in (("baseline", 1.0), ("lean", 1.2)):
        for at in (1, 6):
            folder = tmp_path / config / f"m-openai-chat-concurrency{at}"
            folder.mkdir(parents=True)
            figure = {"unit": "tokens/sec", "avg": 40 * at * factor}
            analyzer = {**ANALYZER, "stimulus": {"concurrency": at}}
            said = {"output_token_throughput": figure, "input_config": {"perf_analyzer": analyzer}}
            (folder / "profile_export_genai_perf.json").write_text(json.dumps({**METRICS, **said}))
            (folder / "profile_export_genai_perf.csv").write_text("Metric,avg\n")
            (folder / "profile_export.json").write_text("{}")
    decision, verdict = choose_from_files([tmp_path], None)
    assert decision.choice == "lean" and verdict.ok
    assert decision.effect("lean").ratio == pytest.approx(1.2)


def test_a_throughput_in_a_strange_unit_is_refused():
    strange = {"output_token_throughput": {"unit": "tokens/min", "avg": 41.5}}
    with pytest.raises(BadInput, match="tokens/min"):
        read_text(json.dumps({**METRICS, **strange, "input_config": {"concurrency": 1}}), "p.json")


# --- terms: a line, or a few keys of parameters

FIGURES = ["baseline,1,92.7", "baseline,30,689.4", "baseline,100,773.1"]
FIGURES += ["topk1,1,86.8", "topk1,30,759.3", "topk1,100,775.0"]
PARAMS = """\
name: k
configurations: [{name: baseline}, {name: topk1, args: ARGS}, {name: topk4}]
choose:
  mix: [{concurrency: 1, share: 15}, {concurrency: 30, share: 60}, {concurrency: 100, share: 25}]
"""


def params_file(tmp_path, text=PARAMS, args="[]"):
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("ARGS", args))
    return path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--mix", "1=0.15,30=0.6,100=0.25"], 0, "choose topk1 provisionally: topk1 gives +5.0 %"),
        (["--mix", "1=0.15 30=60% 100=.25", "--margin", "6%"], 0, "choose baseline"),
        (["--mix", "1=15,30=60,100=25", "--limit", "1=5%"], 0, "loses 6.4 % at C=1, at most 5 %"),
        (["--mix", "1=15,30=60,100=25", "--limit", "1=0.1"], 0, "choose topk1"),
        (["--mix", "30"], 2, "--mix '30'"),
        (["--mix", "30=x"], 2, "--mix 'x'"),
        (["--mix", "1=0"], 2, "must sum to more than 0"),
        (["--mix", "7=1"], 2, "weighs C=7, which was not measured"),
        (["--mix", "1=1", "--margin", "two"], 2, "--margin 'two'"),
        (["--mix", "1=1", "--limit", "speed=3"], 2, "--limit 'speed=3'"),
        (["--margin", "0.1"], 2, "without a mix"),
    ],
)
def test_a_table_and_a_line_are_enough(tmp_path, words, code, said):
    found = choose(table(tmp_path, *FIGURES), *words)
    assert found[0] == code and said in found[1]


def test_contexts_are_named_in_a_mix(tmp_path):
    rows = ["baseline,1,90,0", "a,1,99,0", "baseline,1,40,65536", "a,1,30,65536"]
    path = table(tmp_path, *rows, header=f"{HEADER},context_tokens")
    assert "choose a prov" in choose(path, "--mix", "1@0=1")[1]
    assert "choose baseline prov" in choose(path, "--mix", "1@65536=1")[1]


def test_parameters_need_only_what_a_choice_uses(tmp_path):
    figures = table(tmp_path, *FIGURES)
    code, said = choose(figures, params_file(tmp_path))
    assert code == 0 and "choose topk1 provisionally" in said and "topk4: not measured" in said
    code, said = choose(figures, params_file(tmp_path), "--mix", "1=1")
    assert code == 0 and "choose baseline provisionally" in said
    text = "configurations: [{name: baseline}, {name: topk1}]\n"
    code, said = choose(figures, params_file(tmp_path, text))
    assert code == 0 and "every measured point weighs the same" in said


def test_a_declared_cap_below_the_load_leaves_it_undecided(tmp_path):
    args = '["--max-running-requests", "48"]'
    code, said = choose(table(tmp_path, *FIGURES), params_file(tmp_path, args=args))
    assert code == 1 and "undecided" in said and "48 at once are declared, 100 asked" in said
    server = "server: {args: ['--max-running-requests=64'], engine: sglang}\n"
    code, said = choose(table(tmp_path, *FIGURES), params_file(tmp_path, PARAMS + server))
    assert code == 1 and "topk1 at C=100" in said and "baseline at C=100" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: k", "nam: k", "nam: found an unknown key"),
        ("share: 15", "shar: 15", "choose.mix[0].shar"),
        ("args: []", "arg: []", "configurations[1].arg"),
        ("name: k", "name: k\nserver: {prot: 1}", "server.prot"),
        ("share: 15", "share: many", "choose.mix[0].share"),
    ],
)
def test_unknown_keys_and_wrong_values_are_still_refused(tmp_path, old, new, said):
    text = PARAMS.replace("ARGS", "[]").replace(old, new)
    code, found = choose(table(tmp_path, *FIGURES), params_file(tmp_path, text))
    assert code == 2 and said in found
