"""The command line as SGLang takes it, and what a configuration means by its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.engines.sglang.options import (
    effective_env,
    intended_worker,
    options_of,
    read_options,
    read_switch,
)
from runbook.params import Configuration, Server

SERVER = Server(engine="sglang", port=1, model="/m", draft="/d", args=["--tp", "8"], env={"A": "1"})


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["--tp", "8"], {"--tensor-parallel-size": "8"}),
        (["--tp-size=8"], {"--tensor-parallel-size": "8"}),
        (["--a", "1", "--a", "2"], {"--a": "2"}),
        (["--a=1", "--a"], {"--a": ""}),
        (["--flag", "--a", "-1"], {"--flag": "", "--a": "-1"}),
        (["--list", "1", "2", "--b=x=y"], {"--list": "1", "--b": "x=y"}),
        (["word", "-x", "3"], {}),
    ],
)
def test_options(words, values):
    assert read_options(words).values == values


@pytest.mark.parametrize(
    ("words", "algorithm", "needs_draft"),
    [
        ([], "none", False),
        (["--speculative-algorithm", "none"], "none", False),
        (["--speculative-algo", "eagle3"], "EAGLE3", True),
        (["--speculative-algorithm=NEXTN"], "EAGLE", True),
        (["--speculative-algorithm", "NGRAM"], "NGRAM", False),
        (["--speculative-algorithm"], "none", False),
    ],
)
def test_the_algorithm(words, algorithm, needs_draft):
    options = read_options(words)
    assert (options.algorithm, options.needs_draft) == (algorithm, needs_draft)
    assert options.speculates == (algorithm != "none")


def test_numbers_that_are_none():
    options = read_options(["--speculative-eagle-topk", "four", "--speculative-num-steps"])
    assert (options.topk, options.steps, options.draft_tokens) == (None, None, None)
    assert read_options(["--max-running-requests", "128"]).max_running_requests == 128


def test_what_a_configuration_asks_for():
    configuration = Configuration(name="a", args=["--tp", "4"], env={"A": "2"})
    options = options_of(SERVER, configuration)
    assert options.text("--tensor-parallel-size") == "4"
    assert options.text("--speculative-draft-model-path") == "/d"
    assert effective_env(SERVER, configuration) == {"A": "2"}


def test_an_old_prefix_gives_way_to_the_new_one():
    configuration = Configuration(name="a", env={"SGL_X": "old", "SGL_Y": "y", "SGLANG_X": "new"})
    env = effective_env(SERVER, configuration)
    assert env == {"A": "1", "SGLANG_X": "new", "SGLANG_Y": "y"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(word, True) for word in ("True", "1", "yes", " y ")],
        *[(word, False) for word in ("FALSE", "0", "no", "n")],
        *[(word, None) for word in (None, "", "2", "on")],
    ],
)
def test_a_switch(text, value):
    assert read_switch(text) is value


@pytest.mark.parametrize(
    ("name", "switch", "worker"),
    [
        ("eagle3-topk4-v1", None, "v1"),
        ("eagle3-topk4-v1", True, "v1"),
        ("eagle3-topk1-spec-v2", False, "v2"),
        ("eagle3_specv2", None, "v2"),
        ("eagle3.v2", None, "v2"),
        ("eagle3-topk1", None, None),
        ("eagle3-topk1", True, "v2"),
        ("eagle3-topk1", False, "v1"),
        ("llama-v3-topk1", None, None),
        ("v1-against-v2", None, None),
        ("kimi-v12", None, None),
    ],
)
def test_the_worker_that_is_meant(name, switch, worker):
    assert intended_worker(Configuration(name=name), switch) == worker


NAME = st.from_regex(r"\A--[a-z]{3,9}(-[a-z]{2,5})?\Z").filter(lambda n: n not in ("--model",))
VALUE = st.text(min_size=1).filter(lambda text: not text.startswith("--"))


@given(st.dictionaries(NAME, VALUE), st.booleans())
def test_options_read_back(values, joined):
    words = []
    for name, value in values.items():
        words += [f"{name}={value}"] if joined else [name, value]
    assert read_options(words).values == values


@given(st.lists(st.text()))
def test_any_words_are_read(words):
    options = read_options(words)
    assert options.topk is None or options.topk >= 0
    assert all(name.startswith("--") for name in options.values)
