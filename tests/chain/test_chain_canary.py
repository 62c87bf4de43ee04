"""A whole run on a server that shows its API key wherever it can: the key is in nothing of it."""

import base64
import secrets

import pytest
from boxes import need_box
from command import SHORT, overrides, runbook, short_parameters, wait_nothing_left
from unpacking import contents

KEY = f"sk-{secrets.token_hex(16)}"
#: The key as it is, and the part of its base64 that is the same wherever it begins a text.
FORMS = (KEY.encode(), base64.b64encode(KEY.encode())[:-4])


def shows_key(data):
    return any(form in part for part in contents(data) for form in FORMS)


@pytest.mark.timeout(500)
def test_a_key_that_the_server_shows_everywhere_is_nowhere_in_a_run(tmp_path):
    need_box(tmp_path)
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    path, port = short_parameters(tmp_path, api_key={"file": str(key)})
    out = tmp_path / "run"
    echo = overrides("server.env.STANDIN_ECHOES=yes")
    done = runbook("run", path, "--out", out, "--apply", *overrides(*SHORT), *echo)
    told = done.stdout + done.stderr
    assert KEY not in told
    assert done.returncode == 0, told
    logs = runbook("service", "logs", path, "--run", out, *overrides(*SHORT), *echo)
    drift = runbook("drift", out)
    assert "listening; api_keys=<removed>" in logs.stdout
    for one in (logs, drift, runbook("status", out), runbook("export", out)):
        assert not shows_key((one.stdout + one.stderr).encode())
    # The journal of the box is the server's own word, as a host's is: it is no part of the record.
    own = [one for one in out.rglob("*") if one.is_file() and not one.is_symlink()]
    own = [one for one in own if "journal" not in one.parts]
    assert {"answers.jsonl.gz", "launches.json", "journal.txt"} <= {one.name for one in own}
    assert [one for one in own if shows_key(one.read_bytes())] == []
    assert b"<removed>" in b"".join(one.read_bytes() for one in own if one.suffix == ".json")
    wait_nothing_left(port)
