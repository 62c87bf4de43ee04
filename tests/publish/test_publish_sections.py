"""The sections: values from artefacts alone, unknown is said, nothing claimed that was not done."""

import json
import platform
from dataclasses import replace

import pytest
from synthetic_run import build_run

from runbook import cells
from runbook.errors import BadInput
from runbook.publish import document, run_figures, sections
from runbook.publish.artefacts import Artefacts
from runbook.run import Run


def change_params(run, change) -> Run:
    values = run.params.model_dump(mode="json")
    change(values)
    run.write("params.yaml", json.dumps(values))
    return Run.open(run.path)


@pytest.fixture
def run(tmp_path):
    """A complete run without notebooks."""
    return build_run(tmp_path / "r")


ALL = [
    sections.assumptions,
    sections.benchmark_table,
    sections.decision_table,
    sections.launch_section,
    sections.limits,
    sections.models,
    sections.operations,
    sections.proofs_table,
    sections.provenance,
    sections.repeat,
    sections.rollback,
    sections.service_section,
    sections.stack_table,
    sections.todo_table,
]


@pytest.mark.parametrize("section", ALL, ids=lambda one: one.__name__)
def test_without_any_artefact_a_section_says_so(run, section):
    for path in list(run.path.rglob("*")):
        if path.is_file() and path.name not in ("run.json", "params.yaml"):
            path.unlink()
    assert len(str(section(run.path))) >= 20


def test_the_face_lists_all_sections():
    assert sections.__all__ == sorted(sections.__all__)
    assert {one.__name__ for one in ALL} < set(sections.__all__)


def test_what_did_not_pass_stands_first(run):
    run.write_json(
        "stack.json",
        {
            "facts": {},
            "checks": [
                {"name": name, "status": status, "found": "x", "wanted": "", "fix": ""}
                for name, status in (("a", "pass"), ("b", "unknown"), ("c", "fail"), ("d", "warn"))
            ],
        },
    )
    lines = str(sections.stack_table(run.path)).splitlines()[2:6]
    assert [line.split("|")[1].strip() for line in lines] == ["c", "d", "b", "a"]


def test_the_launch_of_another_configuration_or_of_none(run):
    assert "--spec-type" not in str(sections.launch_section(run.path, "baseline"))
    said = str(sections.launch_section(run.path, "ngram-wide"))
    assert said == "*ngram-wide was not started in this run: no launch is recorded.*"


def test_origin_of_each_variable(run):
    run = change_params(run, lambda v: v["configurations"][2].update(env={"PATH": "/usr/bin"}))
    text = str(sections.launch_section(run.path))
    assert "| `PATH` | `/usr/bin` | parameters: configuration |" in text
    assert "| `OMP_WAIT_POLICY` | `passive` | parameters: server |" in text


def test_what_python_and_the_server_add_is_told_with_its_origin(run):
    text = str(sections.launch_section(run.path))
    by = "start of Python (sitecustomize: /etc/python3.11/sitecustomize.py)"
    assert f"| `PATCHED` | `1` | {by} |" in text
    assert f"| `PYTHONPATH` | removed | {by} |" in text
    assert "| `NCCL_CUMEM_ENABLE` | `0` | the server itself, for its own processes |" in text
    assert "None: this deployment uses no GPU" in text


def test_nccl_is_shown_with_the_links_it_was_tuned_for(run):
    def change(values):
        values["stack"].update(gpus=8, topology="system")

    run = change_params(run, change)
    launches = run.read_json("launches.json")
    launches["ngram-lean"]["spec"]["env"]["NCCL_P2P_LEVEL"] = "SYS"
    run.write_json("launches.json", launches)
    checks = [{"name": "topology", "status": "pass", "found": "system, 28 pairs"}]
    run.write_json("stack.json", {"checks": checks, "fingerprints": {"topology": "abc123"}})
    text = str(sections.launch_section(run.path))
    assert "Tuned for: class `system`. Fingerprint of the links found: `abc123`." in text
    assert "| `NCCL_P2P_LEVEL` | `SYS` |" in text
    assert "| topology | pass | system, 28 pairs |" in text


def test_models_have_fingerprints_and_a_draft_its_own_line(run):
    assert "| model | `embedded:small` | `ed3681cf42571750` | pass | sha256 equal |" in str(
        sections.models(run.path)
    )
    run = change_params(run, lambda v: v["server"].update(draft="/data/eagle3"))
    text = str(sections.models(run.path))
    assert "| draft | `/data/eagle3` | unknown |" in text
    assert "| draft: does it fit the model | `/data/eagle3` | unknown |" in text
    assert "No draft" not in text


@pytest.mark.parametrize(
    ("low", "high", "cost"),
    [(1.01, 1.05, "nothing"), (0.97, 1.05, "perhaps speed"), (0.9, 0.98, "speed")],
)
def test_what_a_single_user_pays_is_always_said(run, low, high, cost):
    decision = run.read_json("decision.json")
    for point in decision["points"]:
        point.update(ratio=(low + high) / 2, low=low, high=high)
    run.write_json("decision.json", decision)
    assert f"- at C=1, the lowest load, {cost}: " in str(sections.decision_table(run.path))


def test_of_a_unit_that_changes_the_difference_is_shown(run):
    run.write("service/diff.txt", "plan\n--- a\n+++ b\n-old\n+new\n")
    text = str(sections.service_section(run.path))
    assert "The plan, with the difference to what was there:" in text
    assert "-old\n+new" in text


def test_operations_of_a_service_that_is_not_there_say_so(run):
    stored = run.read_json("run.json")
    stored["steps"][4].update(status="skipped", reason="no --apply")
    run.write_json("run.json", stored)
    assert "is not installed by this run (this step is skipped)" in str(
        sections.operations(run.path)
    )


def test_what_the_guard_let_pass_stands_in_the_record(run):
    assert "The guard warned" not in str(sections.operations(run.path))
    said = ["warn: shm: 1.0 GiB free; wanted: 2 GiB free or more", "7 good, 1 not, 3 not measured"]
    run.write_json("service/guard_said.json", said)
    text = str(sections.operations(run.path))
    assert "**The guard warned** at the last start: shm: 1.0 GiB free; wanted: 2 GiB" in text


def test_what_no_command_line_holds_is_said_beside_it(run):
    launches = run.read_json("launches.json")
    spec = launches["ngram-lean"]["spec"]
    spec |= {"user": "llm", "nofile": 4096, "credentials": {"api-key": "/etc/llm/key"}}
    run.write_json("launches.json", launches)
    text = str(sections.launch_section(run.path))
    assert "it runs as `llm`; open files 4096, locked memory (bytes) unlimited." in text
    assert "a file `api-key`, a copy of `/etc/llm/key`" in text


FORGETS = "ExecStartPost=+-/usr/bin/systemctl reset-failed %n\n"


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (
            f"[Unit]\nStartLimitIntervalSec=90s\nStartLimitBurst=4\n[Service]\n{FORGETS}",
            "after 4 tries",
        ),
        ("[Unit]\nStartLimitIntervalSec=90s\nStartLimitBurst=4\n", "after 4 starts within 90 s"),
        ("", "Only a start that does not come to serve counts"),
    ],
)
def test_the_record_says_which_starts_its_own_unit_counts_and_how_to_start_again(run, unit, said):
    run.write(f"service/{run.params.service.unit}", unit)
    text = str(sections.operations(run.path))
    assert said in text
    name = run.params.service.unit
    again = f"`systemctl reset-failed {name} && systemctl start {name}`"
    assert "until somebody starts it again." in text and again not in text

    def on_a_host(values):
        values["host"].update(kind="local")

    run = change_params(run, on_a_host)
    assert f"until somebody starts it again: {again}" in str(sections.operations(run.path))


def test_warm_and_cold_starts_are_told_apart(run):
    manifest = run.read_json("service/manifest.json")
    assert "cold, as after a boot: unknown" in str(sections.service_section(run.path))
    run.write_json("service/manifest.json", {**manifest, "load_s": [40.0, 42.5], "cold_s": 280.0})
    text = str(sections.service_section(run.path))
    assert "warm: 40.0 to 42.5 s (2 measured); cold, as after a boot: 280 s" in text
    proved = {"configuration": manifest["configuration"], "seconds": 301.5}
    run.write_json("service/cold_start.json", proved)
    assert "boot: 301.5 s" in str(sections.service_section(run.path))
    run.write_json("service/cold_start.json", {**proved, "configuration": "another"})
    assert "boot: 280 s" in str(sections.service_section(run.path))


def test_operations_on_a_real_host_are_systemctl(run):
    text = str(sections.operations(run.path))
    assert "systemctl start" not in text

    def over_ssh(values):
        values["host"].update(kind="ssh", address="root@gpu")
        values["service"]["replaces"] = ["sglang-old.service"]
        values["server"].update(interpreter="/opt/server/python", model="/models/m.gguf")

    run = change_params(run, over_ssh)
    text = str(sections.operations(run.path))
    assert "`journalctl` on `root@gpu`" in text
    assert f"`.venv/bin/runbook` on `{platform.node()}` in the clone" in text
    assert "`systemctl start llm-rehearsal.service`" in text
    assert "`journalctl -u llm-rehearsal.service -f`" in text
    said = "sglang-old.service, which gave way, comes back as it was"
    assert said in str(sections.rollback(run.path))


def test_a_journal_in_the_evidence_is_a_block_below_the_table(run):
    said = "it is failed (signal), its journal ends:\nline 1\nline 2"
    proofs = [{"name": "stop", "status": "refuted", "evidence": said}]
    run.write_json("service/proofs.json", proofs)
    head, _, block = str(sections.proofs_table(run.path)).partition("\n\nAll that stop said:\n\n")
    assert head.splitlines()[2] == "| stop | refuted | it is failed (signal), its journal ends |"
    assert block == f"```\n{said}\n```"
    run.write_json("service/proofs.json", [{**proofs[0], "name": "environment"}])
    assert "line 1" not in str(sections.assumptions(run.path))


def test_what_has_no_answer_is_grouped_by_its_reason(run):
    checks = [
        {"name": name, "status": "skipped", "found": "no GPU", "wanted": "", "fix": ""}
        for name in ("gpus", "mig")
    ]
    run.write_json("stack.json", {"facts": {}, "checks": checks})
    assert "Skipped:\n\n- gpus, mig: no GPU" in str(sections.stack_table(run.path))
    text = str(sections.limits(run.path))
    assert "gpus, mig" not in text
    assert "- Proofs without an answer: memlock: not provable here, the host clips it" in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--speculative-algorithm", "EAGLE3"], "Speculation that was measured: `EAGLE3`."),
        (["--speculative-algorithm=EAGLE"], "another kind (`EAGLE`), not EAGLE-3"),
        (["--spec-type", "ngram-simple"], "n-gram drafting (`ngram-simple`), not EAGLE-3"),
        ([], "No configuration asks for speculation."),
    ],
)
def test_the_kind_of_speculation_is_said(run, args, words):
    run.write_json("launches.json", {})

    def change(values):
        for one in values["configurations"][1:]:
            one["args"] = args

    run = change_params(run, change)
    assert words in sections.what_it_is(Artefacts.of(run.path))


def test_a_server_that_speaks_of_another_algorithm_is_heard(run):
    run = change_params(run, lambda v: [one.update(args=[]) for one in v["configurations"]])
    assert "`ngram-simple`" in sections.what_it_is(Artefacts.of(run.path))


def test_a_folder_that_is_no_run_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="no run folder"):
        sections.stack_table(tmp_path)


def test_a_damaged_artefact_is_named(run):
    run.write("stack.json", "{")
    with pytest.raises(BadInput, match=r"stack\.json cannot be read"):
        sections.stack_table(run.path)


def test_shares_of_time_are_percent_however_they_were_weighed(run):
    def weigh(values):
        values["choose"]["mix"][0]["share"], values["choose"]["mix"][1]["share"] = 3, 1

    told = str(sections.assumptions(change_params(run, weigh).path))
    assert "shares of time: C=1 75 %, C=8 25 %: declared" in told


def test_acceptance_by_kind_of_prompt_where_servers_tell_it(run):
    told = sections.benchmark_table(run.path)
    assert "by kind of prompt" not in str(told)
    rows = [
        {"config": "ngram-lean", "kind": kind, "tokens_out": 41, "verify_steps": steps}
        for kind, steps in (("json", 10), ("edit", 20), ("edit", 20), ("edit", None))
    ]
    failed = {"config": "ngram-lean", "kind": "json", "tokens_out": 9, "verify_steps": 8}
    lines = [json.dumps({"error_kind": None, **row}) for row in rows]
    lines.append(json.dumps({"error_kind": "cut", **failed}))
    run.write("requests.jsonl", "\n".join(lines) + "\n")
    told = str(sections.benchmark_table(run.path))
    _, _, table = told.partition("Acceptance length by kind of prompt")
    assert "| configuration | edit | json |" in table
    assert "| ngram-lean | 2.00 | 4.00 |" in table


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("decision.json", {"choice": "ngram-lean"}),
        ("stack.json", {"checks": [{"name": "memory"}]}),
        ("stack.json", ["x"]),
        ("launches.json", {"ngram-lean": {"spec": {"argv": ["python"], "colour": "red"}}}),
        ("measured.json", 3),
        ("requests.jsonl", "x"),
        ("service/manifest.json", [1]),
        ("service/proofs.json", [{"name": "reboot"}]),
        ("service/set_by_server.json", "x"),
    ],
)
def test_an_artefact_of_another_form_is_bad_input(run, name, damaged):
    run.write(name, json.dumps(damaged) + "\n")
    with pytest.raises(BadInput, match=name):
        document.render(run.path)


def test_where_nothing_was_sent_no_load_is_claimed(run):
    assert "- Concurrencies other than 1, 8; nothing above 8 was sent." in str(
        sections.limits(run.path)
    )
    (run.path / "cells.csv").unlink()
    said = str(sections.limits(run.path))
    assert "- Any load: nothing was measured in this run." in said
    assert "Concurrencies" not in said


def test_a_cell_is_not_called_by_more_than_its_server_ran(run):
    """107 of 128 ran, and answers began long after thoughts did."""
    measured = cells.read(run.path / "cells.csv")
    few = {"note": "(7/8): the server ran 7 at once", "running": 6.9, "ttfat_p50_ms": 1830.0}
    changed = [replace(one, **few) if one.concurrency == 8 else one for one in measured]
    assert "TTFAT" not in str(sections.benchmark_table(run.path))
    run.write("cells.csv", cells.to_csv(changed))
    told = str(sections.benchmark_table(run.path))
    assert "| baseline | 8 (7 ran) | 32.9 |" in told and "| baseline | 1 | 17.4 |" in told
    assert "TTFAT p50 (ms)" in told and "| 1830 |" in told


def test_the_table_and_the_figure_say_over_what_their_medians_are(run):
    assert "a p50 is that of each cell's own requests" in str(sections.benchmark_table(run.path))
    assert "over the requests of all cells" in run_figures.latency(run.path, keep=False).alt
