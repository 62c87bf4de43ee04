"""Processors, memory nodes and priorities of a process: set, and read back from the kernel."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import probe
from runbook.probe.attributes import apart_in, numbers_in, read_attributes, read_numa

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise priorities")
LAST = max(os.sched_getaffinity(0))
PROGRAM = probe.source("attributes") + (
    "import json, sys\n"
    "set_attributes(json.loads(sys.argv[1]))\n"
    "print(json.dumps(read_attributes(str(os.getpid()))))\n"
)


def after(wanted):
    """The attributes of a new process that gave itself these."""
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, json.dumps(wanted)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_root
@pytest.mark.parametrize(
    "wanted",
    [
        {"cpus": str(LAST)},
        {"nice": 7},
        {"nice": -3, "umask": "0027"},
        {"io_class": "idle"},
        {"io_class": "best-effort", "io_priority": 6},
        {"cpu_policy": "batch", "nice": 5},
        {"cpu_policy": "idle"},
        {"oom_score_adjust": 250},
        {"numa_policy": "bind", "numa_nodes": "0"},
        {"numa_policy": "interleave", "numa_nodes": "0"},
        {"numa_policy": "preferred", "numa_nodes": "0"},
        {"cpus": str(LAST), "nice": 5, "cpu_policy": "batch", "io_class": "idle", "umask": "0077"},
    ],
)
def test_what_is_set_is_what_is_read(wanted):
    found = after(wanted)
    assert {name: found[name] for name in wanted} == wanted


@needs_root
def test_what_is_not_asked_for_is_as_it_was():
    own, found = read_attributes(str(os.getpid())), after({})
    for name in ("cpus", "nice", "cpu_policy", "io_class", "numa_policy", "oom_score_adjust"):
        assert found[name] == own[name]


def test_what_the_kernel_refuses_is_named():
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, json.dumps({"cpus": "1023"})]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "cpus 1023: Invalid argument" in done.stderr


@pytest.mark.parametrize(
    ("maps", "policy", "nodes"),
    [
        ("7f00 bind:1 heap anon=3 N1=3\n7fff bind:1 stack anon=2 N1=2\n", "bind", "1"),
        ("7fff interleave:0-3 stack anon=2\n", "interleave", "0-3"),
        ("7fff prefer:2 stack anon=2\n", "preferred", "2"),
        ("7fff local stack anon=2\n", "local", ""),
        ("7f00 bind:0 file=/dev/shm/x\n7fff default stack anon=2\n", "default", ""),
        ("7fff prefer (many):0-1 stack anon=2\n", "preferred", ""),
        ("7fff weighted interleave:0-1 stack anon=2\n", "weighted", ""),
        ("7fff bind=static:0,2 stack anon=2\n", "bind", "0,2"),
        ("", None, ""),
        ("7f00 default file=/lib/heap\n", None, ""),
    ],
)
def test_the_policy_of_a_process_is_that_of_its_stack(maps, policy, nodes):
    assert read_numa(maps) == (policy, nodes)


@given(st.text(max_size=200))
def test_any_text_is_a_policy_or_none(maps):
    policy, nodes = read_numa(maps)
    assert policy is None or isinstance(policy, str)
    assert isinstance(nodes, str)


@given(st.sets(st.integers(0, 500), max_size=30))
def test_a_list_of_numbers_is_read_as_it_is_written(numbers):
    assert numbers_in(",".join(map(str, sorted(numbers)))) == numbers
    assert numbers_in("3-5,9") == {3, 4, 5, 9}


@needs_root
def test_what_a_process_is_apart_in():
    assert apart_in("self") == []
    argv = ["unshare", "--mount", "--ipc", "sh", "-c", "echo; read end"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert apart_in(str(process.pid)) == ["mnt", "ipc"]
        process.communicate(b"\n")
    assert apart_in(str(process.pid)) is None


def test_each_probe_is_one_file_that_imports_nothing_of_the_runbook():
    for name in ("enter", "look", "guard"):
        text = probe.source(name)
        assert "runbook.probe" not in text.partition("from __future__")[2]
        compile(text, name, "exec")
