import pytest

from runbook.launch.lint import lint
from runbook.launch.spec import LaunchSpec
from runbook.launch.unit import UnitSettings, render_unit


def failed(text, host=None):
    return {c.name: c.found for c in lint(text, host) if c.status == "fail"}


def unit(*lines):
    return "\n".join(["[Service]", *lines, ""])


def test_a_rendered_unit_passes():
    spec = LaunchSpec(("/usr/bin/env", "a b", "$x", "50%"), {"PATH": "/usr/bin", "MAX": "$1"}, "/")
    text = render_unit(spec, UnitSettings("d", 10, 10, restart_s=1, wanted_by="multi-user.target"))
    assert failed(text) == {}


@pytest.mark.parametrize(
    ("line", "rule", "word"),
    [
        ('Environment="PATH=/usr/local/cuda/bin:$PATH"', "unit: environment", "expands nothing"),
        ("Environment=A=${HOME}/x", "unit: environment", "expands nothing"),
        ("Environment=export A=1", "unit: environment", "'export' is no assignment"),
        ("Environment=A=Ring Tree", "unit: environment", "'Tree' is no assignment"),
        ("Environment=PATH=/usr/bin:", "unit: environment", "empty element"),
        ("Environment=PATH=:/usr/local/cuda/bin", "unit: environment", "empty element"),
        ("Environment=CUDA_HOME=:/opt/cuda-12.9", "unit: environment", "CUDA_HOME is one folder"),
        ("Environment=CUDA_PATH=/a:/b", "unit: environment", "CUDA_PATH is one folder"),
        ("Environment=A=1\nEnvironment=A=2", "unit: environment", "A is set twice"),
        ("Environment=HF_TOKEN=hf_x", "unit: secrets", "HF_TOKEN"),
        ("Environment='A=1", "unit: syntax", "open quote"),
        ("ExecStart=\nExecStart=python3 x", "unit: command", "no absolute path"),
        ("ExecStart=", "unit: command", "no ExecStart"),
        ("ExecStart=\nExecStart=-/usr/bin/env", "unit: command", "hides"),
        ("ExecStart=\nExecStart=/usr/bin/env $OPTIONS", "unit: command", "expands a variable"),
        ("ExecStart=\nExecStart=/usr/bin/env --api-key=k", "unit: secrets", "--api-key"),
    ],
)
def test_each_mistake_is_named(line, rule, word):
    found = failed(unit("ExecStart=/usr/bin/env", line))
    assert word in found[rule]


def test_figures_are_no_secrets_and_doubled_dollars_no_variables():
    assert failed(unit("ExecStart=/usr/bin/env a$$b", "Environment=BOS_TOKEN=1")) == {}
