"""Where no box can be made, the reason says what to do."""

from pathlib import Path

import pytest

from runbook import params
from runbook.errors import NotHere
from runbook.hosts import box_needs, open_host, why_no_box

ASK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from runbook.hosts import why_no_box
print([why_no_box(Path(folder)) for folder in sys.argv[2:]])
"""
CLONE = str(Path(__file__).parents[2])


def test_where_it_is_asked_nothing_is_left(tmp_path):
    why_no_box(tmp_path / "not/there/yet")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_names_its_package_and_opening_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(box_needs._PROGRAMS, "systemd-absent", "systemd")
    said = "systemd-absent is missing: apt-get install systemd"
    assert why_no_box(tmp_path) == said
    with (
        pytest.raises(NotHere, match=f"no box can be made here: {said}"),
        open_host(params.Host(kind="box"), tmp_path / "box"),
    ):
        pass
    assert not (tmp_path / "box").exists()


def test_a_machine_without_cgroup2_says_so(tmp_path, monkeypatch, box):
    monkeypatch.setattr(box_needs, "cgroup2_folder", lambda: None)
    assert why_no_box(tmp_path).startswith("cgroup2 is not mounted: mount -t cgroup2")


def test_an_overlay_that_cannot_be_stacked_is_found_by_trying(box):
    """The root of a box is an overlay itself: no box in there, but one in its /tmp."""
    done = box.run(box.python, "-c", ASK, CLONE, "/var/tmp/box", "/tmp/box")
    reason, none = done.out.strip().rpartition(", ")[::2]
    assert none == "None]", done.out
    assert "no overlay with its files in /var/tmp/box" in reason
    assert "use a folder on ext4, xfs or tmpfs" in reason
