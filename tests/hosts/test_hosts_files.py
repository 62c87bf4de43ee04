"""Files on a host: byte for byte, whole or not at all, on disk in the right order."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook import atomic
from runbook.errors import HostFailed
from runbook.hosts import LocalHost
from runbook.hosts.base import far_side

NAMES = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="/\0"), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) < 200)


@pytest.fixture
def folder(host, tmp_path):
    path = Path("/var/tmp") / f"files-{os.getpid()}" if host.kind != "local" else tmp_path / "files"
    host.make_dir(path)
    yield path
    host.remove(path)


def test_files_are_written_read_listed_and_removed(host, folder):
    path = folder / 'a file: it\'s "named" $HOME \\n'
    data = bytes(range(256)) * 300
    assert (host.read(path), host.exists(path), host.list(folder)) == (None, False, [])
    host.write(path, data, 0o640)
    assert host.read(path) == data
    assert host.run("stat", "-c", "%a", str(path)).out == "640\n"
    host.write(path, "text ü")
    assert host.read(path) == "text ü".encode()
    assert host.run("stat", "-c", "%a", str(path)).out == "644\n"
    assert host.list(folder) == [path.name]
    host.remove(path)
    host.remove(path)
    assert not host.exists(path)
    assert host.list(path) is None


def test_folders_are_made_with_their_parents_and_removed_with_their_content(host, folder):
    host.make_dir(folder / "a/b/c", 0o700)
    host.make_dir(folder / "a/b/c", 0o755)
    assert (
        host.run("stat", "-c", "%a", str(folder / "a/b/c"), str(folder / "a/b")).out == "700\n755\n"
    )
    host.write(folder / "a/b/c/d", "")
    assert host.read(folder / "a/b/c/d") == b""
    host.run("ln", "-s", "/etc", str(folder / "link"))
    host.run("ln", "-s", "/absent", str(folder / "dangling"))
    assert host.exists(folder / "dangling")
    host.remove(folder / "link")
    host.remove(folder / "a")
    assert host.list(folder) == ["dangling"]
    assert host.exists("/etc/passwd")


def test_what_cannot_be_done_says_what_and_why(host, folder):
    host.write(folder / "file", "x")
    for wrong, said in (
        (lambda: host.read(folder), "Is a directory"),
        (lambda: host.write(folder / "absent/file", "x"), "No such file"),
        (lambda: host.write(folder, "x"), "directory"),
        (lambda: host.make_dir(folder / "file/below"), "Not a directory|exists"),
        (lambda: host.write("relative", "x"), "absolute"),
    ):
        with pytest.raises(HostFailed, match=said) as caught:
            wrong()
        assert "Traceback" not in str(caught.value)
    assert host.list(folder) == ["file"]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, data=st.binary(max_size=2000))
def test_any_name_and_any_content(tmp_path, name, data):
    host = LocalHost()
    host.write(tmp_path / name, data)
    assert host.read(tmp_path / name) == data
    assert host.list(tmp_path) == [name]
    host.remove(tmp_path / name)


def test_a_reader_sees_the_old_or_the_new_file_and_nothing_else(tmp_path):
    host, path = LocalHost(), tmp_path / "file"
    old, new = b"o" * 300_000, b"n" * 200_000
    host.write(path, old)
    seen, stop = set(), threading.Event()

    def watch():
        while not stop.is_set():
            seen.add(path.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for data in (new, old, new):
        host.write(path, data)
    stop.set()
    watcher.join()
    assert seen <= {old, new}


def test_content_is_on_disk_before_it_gets_its_name_and_the_name_before_the_end(tmp_path):
    calls = traced_calls(tmp_path) if shutil.which("strace") else audited_calls(tmp_path)
    assert calls == ["fsync temporary", "rename temporary file", "fsync folder"]


def test_the_order_is_seen_without_strace_too(tmp_path):
    assert audited_calls(tmp_path) == ["fsync temporary", "rename temporary file", "fsync folder"]


def traced_calls(folder):
    """fsync and rename of a write, as the kernel saw them."""
    trace = ["strace", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-s", "999"]
    argv = [sys.executable, "-I", "-S", "-c", far_side(), "write", str(folder / "file"), "644", "4"]
    done = subprocess.run([*trace, *argv], input=b"data", capture_output=True, check=True)
    calls = []
    for line in done.stderr.decode().splitlines():
        if line.startswith(("fsync(", "fdatasync(")):
            calls.append("fsync " + named(re.search(r"<(.*)>", line)[1], folder))
        elif line.startswith("rename"):
            old, new = re.findall(r'"(.*?)"', line)
            calls.append(f"rename {named(old, folder)} {named(new, folder)}")
    return calls


def audited_calls(folder):
    """The same by watching Python's own calls, where the kernel cannot be watched."""
    script = f"""
import json, os, sys
calls, sync = [], os.fsync
def fsync(descriptor):
    calls.append(["fsync", os.readlink(f"/proc/self/fd/{{descriptor}}")])
    sync(descriptor)
os.fsync = fsync
def hook(name, args):
    if name == "os.rename":
        calls.append(["rename", *map(str, args[:2])])
sys.addaudithook(hook)
exec({far_side()!r})
print(json.dumps(calls))
"""
    argv = [sys.executable, "-I", "-S", "-c", script, "write", str(folder / "file"), "644", "4"]
    done = subprocess.run(argv, input=b"data", capture_output=True, check=True)
    return [
        " ".join([call, *(named(path, folder) for path in paths)])
        for call, *paths in json.loads(done.stdout)
    ]


def named(path, folder):
    path = Path(path)
    if path == folder:
        return "folder"
    return "temporary" if path.name.startswith(".file.") and path.parent == folder else path.name


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    argv = [sys.executable, "-I", "-S", "-c", far_side(), "write", str(path), "644", "1000000"]
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *argv]
    done = subprocess.run(limited, input=b"x" * 10**6, capture_output=True, check=False)
    assert done.returncode != 0
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_sender_that_ends_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    argv = [sys.executable, "-I", "-S", "-c", far_side(), "write", str(path), "644", "9"]
    done = subprocess.run(argv, input=b"half", capture_output=True, check=False)
    assert (done.returncode, path.read_text()) == (1, "old")
    assert "4 of 9 bytes came" in done.stderr.decode()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_half_written_files_are_named_alike_here_and_there():
    assert f'SUFFIX = "{atomic.SUFFIX}"' in far_side()
