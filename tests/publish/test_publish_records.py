"""Records of the production case, from artefacts of real runs on a stand-in host of eight cards.

``python tests/gpu_host.py`` makes the runs; each golden file was read from top to bottom.
"""

import re
import shutil
from pathlib import Path

import pytest

from runbook.publish import document
from runbook.publish.outline import OUTLINE
from runbook.run import Run

RECORDS = Path(__file__).parents[1] / "cases" / "records"
NAMES = ["chosen", "undecided"]


def rendered(name, folder):
    """The record of one of the runs, without what changes from place to place."""
    shutil.copytree(RECORDS / name, folder / name, ignore=shutil.ignore_patterns("golden.md"))
    run = Run.open(folder / name)
    text, figures = document.render(run.path)
    text = text.replace(str(run.path), "RUN").replace(run.params.identity(), "IDENTITY")
    text = re.sub(r"^\| exported \| .*", "| exported | TIME |", text, flags=re.MULTILINE)
    text = re.sub(r"^\| [^|]*, at the export \|.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"on `[^`]*`, `([^`]*)` there in the clone `[^`]*`", r"on HOST, `\1` in CLONE", text
    )
    text = re.sub(r"```yaml\n.*?```", "```yaml\nPARAMETERS\n```", text, flags=re.DOTALL)
    return re.sub(r"all lines above: `[^`]*`", "all lines above: `DIGEST`", text), figures


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_as_it_was_read_by_a_person(name, tmp_path):
    golden = RECORDS / name / "golden.md"
    text, figures = rendered(name, tmp_path)
    if not golden.exists():
        golden.write_text(text)
        pytest.fail("golden file written: read it, commit it")
    assert text == golden.read_text()
    assert len(figures) == 6


def section(text, title):
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_it_holds_what_one_needs_who_was_not_there():
    text = (RECORDS / "chosen" / "golden.md").read_text()
    assert [f"## {one.title}" for one in OUTLINE] == re.findall(r"^## .*", text, re.MULTILINE)
    launch = section(text, "Configuration")
    for name, value, origin in (
        ("SGLANG_ENABLE_SPEC_V2", "True", "parameters: configuration"),
        ("NCCL_P2P_LEVEL", "SYS", "parameters: server"),
        ("PYTHONUNBUFFERED", "1", "runbook"),
        ("NCCL_CUMEM_ENABLE", "0", "the server itself, for its own processes"),
    ):
        assert f"| `{name}` | `{value}` | {origin} |" in launch
    assert (
        len(re.findall(r"`SGLANG_SM120_PATCHES` .*start of Python \(sitecustomize: ", launch)) == 1
    )
    assert "Tuned for: class `system`." in launch
    assert "| collective | pass |" in launch
    assert re.search(
        r"^\| draft \| `/data/eagle3/.*` \| `[0-9a-f]{16}` \|",
        section(text, "Model and draft"),
        re.M,
    )
    assert "systemctl restart sglang-kimi.service" in section(text, "Operations")
    assert "--after-boot" in section(text, "Operations")
    assert "; worker v2 overlap; " in section(text, "Benchmark")
    assert re.search(r"server info \| proved \| .*worker v2 overlap", section(text, "Proofs"))
    assert "that it comes back at a boot is not proved" in section(text, "Verdict")
    assert "make host\n" in section(text, "How to repeat the run")


def test_a_negative_verdict_is_said_once_in_full():
    text = (RECORDS / "undecided" / "golden.md").read_text()
    verdict = section(text, "Verdict")
    assert "1. **Choice.** None, undecided: " in verdict
    assert "3. **Run.** FAILED at choose: no choice, see line 1." in verdict
    assert "**Nothing is chosen: what follows is the launch of the baseline.**" in text
    assert "What to do next:" in section(text, "Decision")
    assert section(text, "Service").strip() == "Not reached: the run failed at choose."
