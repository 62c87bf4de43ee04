"""The page cache of a model's files is dropped, and what stays is told."""

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runbook import probe
from runbook.launch.page_cache import Dropped, drop_page_cache
from runbook.launch.process import ProcessLauncher
from runbook.probe.page_cache import drop, files_of, resident_bytes

SIZE = 3 * 2**20 + 17


@pytest.fixture
def on_disk(request):
    """A folder on this machine's disk: a tmpfs keeps what is dropped of it."""
    folder = Path(__file__).parent / f".{request.node.name.partition('[')[0]}"
    folder.mkdir(exist_ok=True)
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def write(path, size=SIZE):
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return path


def in_memory(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return resident_bytes(descriptor, path.stat().st_size)
    finally:
        os.close(descriptor)


def test_what_was_in_memory_is_not_any_more(on_disk):
    paths = [write(on_disk / f"model-{n}") for n in range(3)]
    assert [in_memory(path) for path in paths] == [SIZE] * 3
    told = drop([str(on_disk)])
    assert told == {"files": 3, "bytes": 3 * SIZE, "resident_bytes": 0, "failed": []}
    assert [in_memory(path) for path in paths] == [0] * 3


def test_pages_that_a_running_process_maps_stay_and_are_told(on_disk):
    path = write(on_disk / "mapped")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        mapped.read()
        dropped = ProcessLauncher(on_disk).drop_page_cache([str(path)])
    assert dropped.resident_bytes == SIZE
    assert "100% of its files stayed in memory" in dropped.why_not_cold
    (on_disk / "mapped").read_bytes()
    assert ProcessLauncher(on_disk).drop_page_cache([str(path)]).why_not_cold is None


def test_the_parts_of_a_split_file_and_the_files_behind_links(tmp_path):
    part = "/m/x-00002-of-00003.gguf"
    assert list(files_of([part])) == [f"/m/x-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    write(tmp_path / "blob", 10)
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot/a").symlink_to(tmp_path / "blob")
    (tmp_path / "snapshot/b").symlink_to(tmp_path / "blob")
    assert drop([str(tmp_path / "snapshot")])["files"] == 1, "one file behind two links"


@pytest.mark.parametrize(
    ("dropped", "why"),
    [
        (Dropped(2, 100, 0, ()), None),
        (Dropped(2, 100, 1, ()), None),
        (Dropped(2, 100, 50, ()), "50% of its files stayed"),
        (Dropped(2, 100, None, ()), "not told to this user"),
        (Dropped(1, 100, 0, ("/m: Permission denied",)), "/m: Permission denied"),
        (Dropped(0, 0, 0, ()), "no files"),
    ],
)
def test_a_start_is_cold_only_where_that_was_seen(dropped, why):
    assert dropped.why_not_cold == why or why in dropped.why_not_cold


def test_it_runs_alone_on_the_standard_library(tmp_path):
    argv = [sys.executable, "-I", "-S", "-", str(tmp_path / "absent")]
    done = subprocess.run(argv, input=probe.source("page_cache").encode(), capture_output=True)
    assert json.loads(done.stdout)["failed"] == [f"{tmp_path}/absent: No such file or directory"]


def test_an_answer_that_is_none_is_an_error_for_people():
    from runbook.errors import HostFailed
    from runbook.hosts.base import Done

    with pytest.raises(HostFailed, match="no python"):
        drop_page_cache(lambda *_: Done((), 1, "", "no python"), ["/m"])
