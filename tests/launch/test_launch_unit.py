import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from runbook.errors import BadInput
from runbook.hosts.local import LocalHost
from runbook.launch.lint import lint
from runbook.launch.spec import KERNEL_NAMES, LaunchSpec
from runbook.launch.unit import (
    PROCESS_SETTINGS,
    SANDBOX,
    UnitSettings,
    is_managed,
    is_untouched,
    render_unit,
)
from runbook.params.model import Process

SPEC = LaunchSpec(("/usr/bin/python3", "-m", "x"), {"PATH": "/usr/bin", "A": "b c"}, "/srv/a b")
SETTINGS = UnitSettings("A server", 600, 60, restart_s=5, wanted_by="multi-user.target")


def lines(spec=SPEC, **settings):
    return render_unit(spec, dataclasses.replace(SETTINGS, **settings)).splitlines()


def test_the_whole_environment_stands_in_the_unit_and_nothing_comes_from_the_manager():
    text = lines()
    assert [line for line in text if line.startswith("Environment=")] == [
        'Environment="A=b c"',
        'Environment="PATH=/usr/bin"',
    ]
    assert "UnsetEnvironment=HOME LANG LOGNAME SHELL USER" in text


def test_a_name_that_the_spec_holds_is_not_taken_out_again():
    spec = dataclasses.replace(SPEC, env=dict.fromkeys(["HOME", "LANG", "PATH", "USER"], "x"))
    assert "UnsetEnvironment=LOGNAME SHELL" in lines(spec)


def test_the_start_limit_holds_even_when_each_start_takes_all_its_time():
    settings = dataclasses.replace(SETTINGS, start_limit_burst=4)
    assert settings.start_limit_interval_s > 4 * (600 + 60 + 5)
    assert f"StartLimitIntervalSec={settings.start_limit_interval_s:.0f}s" in lines(
        start_limit_burst=4
    )


def test_a_runtime_unit_neither_restarts_nor_starts_at_boot():
    text = lines(restart_s=None, wanted_by=None)
    assert "Restart=no" in text
    assert "[Install]" not in text
    assert not [line for line in text if line.startswith("StartLimit")]


def test_no_limit_is_infinity_and_figures_stay():
    spec = dataclasses.replace(SPEC, nofile=None, memlock=65536, user="llm")
    text = lines(spec)
    assert {"LimitNOFILE=infinity", "LimitMEMLOCK=65536", "User=llm"} <= set(text)


def test_a_secret_is_a_credential_and_only_its_path_is_written():
    spec = dataclasses.replace(SPEC, credentials={"api_key": "/etc/llm/100%"})
    assert "LoadCredential=api_key:/etc/llm/100%%" in lines(spec)
    with pytest.raises(BadInput):
        lines(dataclasses.replace(SPEC, credentials={"api:key": "/etc/key"}))


def test_mounts_gate_and_driver():
    text = lines(mounts=('/mod "els"',), gate=("/usr/bin/python3", "/g.py"), gpus=2)
    assert 'RequiresMountsFor="/mod \\"els\\""' in text
    assert "ExecStartPost=/usr/bin/python3 /g.py" in text
    made = [line for line in text if "nvidia-modprobe" in line]
    nodes = "ExecStartPre=+-/usr/bin/nvidia-modprobe"
    assert made == [f"{nodes} -c=0 -c=1 -c=255", f"{nodes} -u -c=0"]
    assert "Wants=network-online.target nvidia-persistenced.service" in text
    assert "Wants=network-online.target" in lines()


def test_a_start_that_has_served_begins_the_count_of_tries_anew():
    text = lines(gate=("/usr/bin/python3", "/g.py"), stopped=("/usr/bin/python3", "/s.py"))
    posts = [line.removeprefix("ExecStartPost=") for line in text if "ExecStartPost" in line]
    assert posts == ["/usr/bin/python3 /g.py", "+-/usr/bin/systemctl reset-failed %n"]
    assert "ExecStopPost=+-/usr/bin/python3 /s.py" in text
    assert not [line for line in lines() if "reset-failed" in line], "no gate: nobody has served"
    measured = lines(gate=("/usr/bin/python3", "/g.py"), restart_s=None)
    assert not [line for line in measured if "reset-failed" in line]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/root/production_v2.md", "file:///root/production_v2.md"),
        ("/srv/a b/é.md", "file:///srv/a%%20b/%%C3%%A9.md"),
        ("/srv/50%.md", "file:///srv/50%%25.md"),
    ],
)
def test_status_points_to_the_record(path, shown):
    assert f"Documentation={shown}" in lines(document=path)
    assert {"SyslogIdentifier=%N", "LimitCORE=0"} <= set(lines())


@pytest.mark.parametrize("cwd", ["relative", "/a ", "/a\nExecStartPre=/bin/x", "/a\\"])
def test_a_directory_that_would_change_the_unit_is_refused(cwd):
    with pytest.raises(BadInput):
        lines(dataclasses.replace(SPEC, cwd=cwd))


def test_a_description_stays_one_line_without_specifiers():
    assert "Description=50%% of a thing" in lines(description="50% of\na thing\\")


def test_the_header_tells_ours_from_foreign_and_from_changed():
    text = render_unit(SPEC, SETTINGS)
    assert is_managed(text)
    assert is_untouched(text)
    edited = text.replace("Restart=always", "Restart=no")
    assert is_managed(edited)
    assert not is_untouched(edited)
    assert not is_managed("[Service]\nExecStart=/bin/true\n")
    assert not is_managed("")


def test_the_document_shows_each_option_of_the_sandbox_and_why():
    document = Path(__file__).parents[2] / "docs" / "service.md"
    rows = [line for line in document.read_text().splitlines() if line.startswith("| `")]
    for option, value, why in SANDBOX:
        shown = f"`{value}`" if value else "off"
        assert f"| `{option}` | {shown} | {why} |" in rows


def test_processors_memory_priorities_and_limits_stand_as_systemds_settings():
    process = {
        **{"cpus": "0-31,64", "numa_policy": "bind", "numa_nodes": "0-1", "nice": -5},
        **{"io_class": "realtime", "io_priority": 2, "cpu_policy": "fifo", "cpu_priority": 9},
        **{"oom_score_adjust": 100, "umask": "0027"},
    }
    spec = dataclasses.replace(SPEC, process=process, limits={"core": 0, "stack": None})
    text = lines(spec)
    assert {
        *("CPUAffinity=0-31,64", "NUMAPolicy=bind", "NUMAMask=0-1", "Nice=-5", "UMask=0027"),
        *("IOSchedulingClass=realtime", "IOSchedulingPriority=2", "OOMScoreAdjust=100"),
        *("CPUSchedulingPolicy=fifo", "CPUSchedulingPriority=9"),
        *("LimitCORE=0", "LimitSTACK=infinity"),
    } <= set(text)
    assert len([line for line in text if line.startswith("OOMScoreAdjust")]) == 1
    assert set(PROCESS_SETTINGS) == set(Process.model_fields)


def test_systemd_knows_every_setting_of_a_process_and_every_limit():
    process = Process(
        **{"cpus": "0", "numa_policy": "bind", "numa_nodes": "0", "nice": 19, "umask": "077"},
        **{"io_class": "idle", "io_priority": 7, "cpu_policy": "rr", "cpu_priority": 1},
        oom_score_adjust=-1000,
    ).given()
    further = dict.fromkeys(set(KERNEL_NAMES) - {"nofile", "memlock"}, 7)
    spec = dataclasses.replace(SPEC, argv=("/bin/true",), cwd="/", process=process, limits=further)
    found = lint(render_unit(spec, SETTINGS), LocalHost())
    assert [check for check in found if check.status == "fail"] == []


def test_a_launch_without_them_has_the_fingerprint_it_had():
    changed = dataclasses.replace(SPEC, process={"nice": 1})
    assert SPEC.fingerprint() != changed.fingerprint()
    stored = json.loads((Path(__file__).parents[2] / "docs/example-run/launches.json").read_text())
    for one in stored.values():
        spec = LaunchSpec(**{**one["spec"], "argv": tuple(one["spec"]["argv"])})
        assert (
            spec.fingerprint()
            == hashlib.sha256(
                json.dumps(
                    {k: v for k, v in one["spec"].items() if v or k != "files"}, sort_keys=True
                ).encode()
            ).hexdigest()
        )
