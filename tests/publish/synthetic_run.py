"""A synthetic run folder: every artefact as the stages write them, notebooks really executed."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from runbook import cells, params, strict_yaml
from runbook.benchmark.book import Launch
from runbook.cells import Cell
from runbook.checks import Check
from runbook.choose import decide
from runbook.engines.base import ServerInfo
from runbook.launch.spec import LaunchSpec
from runbook.load.records import Record
from runbook.params import Params
from runbook.run import STAGES, STEPS, Run

PARAMETERS = """
name: rehearsal
host: {kind: box}
server: {engine: llamacpp, port: 18080, model: "embedded:small", env: {OMP_WAIT_POLICY: passive}}
configurations:
  - {name: baseline}
  - {name: ngram-wide, args: ["--spec-type", "ngram-simple", "--ngram-n", "2"]}
  - {name: ngram-lean, args: ["--spec-type=ngram-simple", "--ngram-n", "3"]}
benchmark: {concurrencies: [1, 8]}
choose:
  mix: [{concurrency: 1, share: 0.7}, {concurrency: 8, share: 0.3}]
  prefer: [ngram-lean]
  expected: ngram-lean
service: {unit: llm-rehearsal.service}
record: {document: /root/production_v2.md, plan: /root/eagle-fast-verify.md}
"""
SPEED = {
    ("baseline", 1): 17.4,
    ("baseline", 8): 32.9,
    ("ngram-wide", 1): 21.0,
    ("ngram-wide", 8): 26.2,
    ("ngram-lean", 1): 22.6,
    ("ngram-lean", 8): 29.6,
}
WOBBLE = (0.99, 1.0, 1.01, 1.004)
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
STARTED = {
    "sitecustomize": {"loaded": "/etc/python3.11/sitecustomize.py"},
    "environment": {"set": {"PATCHED": "1"}, "changed": {}, "removed": ["PYTHONPATH"]},
}
EVIL = "<script>alert(1)</script> | `x` \x1b[31mred\x1b[0m"

#: Sections that the notebooks of the synthetic run bear: code of the cell, by stage.
CELLS = {
    "verify_stack": [("stack", "sections.stack_table(run)")],
    "benchmark": [
        ("benchmark", "sections.benchmark_table(run)"),
        ("benchmark", "run_figures.throughput(run)"),
        ("launch", "sections.launch_section(run)"),
    ],
    "choose": [
        ("decision", "sections.decision_table(run)"),
        ("decision", "run_figures.ratio(run)"),
    ],
    "install_service": [
        ("service", "sections.service_section(run)"),
        ("proofs", "sections.proofs_table(run)"),
    ],
    "publish": [("provenance", "sections.provenance(run)")],
}


def measured_cells() -> list[Cell]:
    """Four blocks; one cell of ngram-wide is void."""
    found, life = [], 0
    for block in (1, 2, 3, 4):
        for place, config in enumerate(("baseline", "ngram-wide", "ngram-lean")):
            life += 1
            for concurrency in (1, 8):
                speed = SPEED[config, concurrency] * WOBBLE[(block + place) % 4]
                found.append(
                    Cell(
                        config,
                        life,
                        block,
                        concurrency,
                        requests=8,
                        output_tok_s=speed,
                        ttft_p50_ms=200.0 * concurrency**0.5,
                        ttft_p99_ms=400.0 * concurrency**0.5,
                        tpot_p50_ms=1000 * concurrency / speed,
                        chunk_gap_p50_ms=1500 * concurrency / speed,
                        accept_length=None if config == "baseline" else 1.5,
                    )
                )
    found[-3] = replace(found[-3], status="void", output_tok_s=None, note="event lag | 80 ms")
    return found


def decision() -> dict:
    """The decision on these cells, as 03_choose writes it."""
    return json.loads(decide(measured_cells(), parameters().choose).to_json())


def parameters() -> Params:
    return params.from_values(
        strict_yaml.parse(PARAMETERS, "the synthetic run"), "the synthetic run"
    )


def launches() -> dict:
    def launch(config, args):
        spec = LaunchSpec(
            argv=("/opt/venv/bin/python", "-m", "server", *args),
            env={"OMP_WAIT_POLICY": "passive", "PATH": "/usr/bin"},
            cwd="/srv/it's here",
        )
        info = ServerInfo("m", "none" if config == "baseline" else "ngram-simple", 8)
        checks = (Check(f"{config}: speculation", "warn", "0.97 accepted", "less than 0.95"),)
        return Launch(spec, "unit", (3.1, 2.9, 3.0), info, checks).as_json()

    lean = ["--spec-type", "ngram-simple", "--ngram-n", "3"]
    return {"baseline": launch("baseline", []), "ngram-lean": launch("ngram-lean", lean)}


def requests() -> str:
    """Four requests a cell; the last line was cut off."""
    rows = []
    for cell in measured_cells():
        for number in range(4):
            record = Record(
                "p",
                scheduled_s=1.0,
                sent_s=1.0,
                first_token_s=1.2 + number / 100,
                last_token_s=3.2 + number / 50,
                tokens_out=51,
            )
            names = ("config", "life", "block", "concurrency")
            place = {name: getattr(cell, name) for name in names} | {"cell": cell.mark}
            rows.append(place | asdict(record))
    return "".join(json.dumps(row) + "\n" for row in rows) + '{"config": "cut o'


def build_run(path: Path) -> Run:
    """A run folder with all artefacts and all steps completed, without notebooks."""
    run = Run.create(parameters(), path)
    for step in STEPS:
        run.begin(step)
    run.write("cells.csv", cells.to_csv(measured_cells()))
    run.write("requests.jsonl", requests())
    run.write_json("decision.json", decision())
    run.write_json("launches.json", launches())
    guards = [
        Check("prefix cache", "pass", "0.0% in all", "as much in all"),
        Check("request cap", "warn", "baseline 2048 at once, ngram-lean 48 at once", "the same"),
        Check("clocks of the GPUs", "skipped", "no GPU told any"),
    ]
    notes = {"notes": ["block 2 was measured again"], "guards": [asdict(one) for one in guards]}
    run.write_json("measured.json", notes)
    run.write_json(
        "stack.json",
        {
            "facts": {"kernel": "6.1", "cores": 2, "gpus": None, "evil": EVIL},
            "checks": [
                asdict(Check("memory", "pass", "8 GiB", "3 GiB")),
                asdict(Check("nccl", "skipped", "no GPU")),
                asdict(Check("model", "pass", "sha256 equal")),
            ],
            "fingerprints": {"model": "ed3681cf42571750", "topology": None},
            "readings": {"serving": {"ngram-lean": {"facts": STARTED}}},
        },
    )
    unit = run.params.service.unit
    run.write_json("service/set_by_server.json", {"NCCL_CUMEM_ENABLE": "0"})
    run.write(f"service/{unit}", "[Service]\nExecStart=/opt/venv/bin/python -m server\n")
    plan = f"plan for {unit}, generation 1:\n  means: a ``` new unit\n"
    run.write("service/diff.txt", f"{plan}--- /dev/null\n+++ {unit}\n+[Service]\n")
    run.write_json(
        "service/manifest.json",
        {
            "unit": unit,
            "configuration": "ngram-lean",
            "spec": launches()["ngram-lean"]["spec"],
            "launch": "unit",
            "start_timeout_origin": "start timeout 30 s: three times the slowest load",
            "files": {f"/etc/systemd/system/{unit}": "ab" * 32},
        },
    )
    run.write_json(
        "service/proofs.json",
        [
            {"name": "environment", "status": "proved", "evidence": "12 variables equal"},
            {"name": "reboot", "status": "proved", "evidence": "boot id changed"},
            {"name": "memlock", "status": "not provable here", "evidence": "the host clips it"},
        ],
    )
    for step in STEPS:
        run.finish(step, "completed", "done")
    return run


def execute_notebook(run: Run, stage: str, kernel, extra: list[tuple[dict, str]] = ()) -> Path:
    """Write the notebook of one stage and execute it in ``kernel``, a kernel manager."""
    head = "from runbook.publish import run_figures, sections\n"
    injected = {"tags": ["injected-parameters"]}
    built = [
        new_markdown_cell("Prose of the notebook, which the record does not take."),
        new_code_cell('run = ""', metadata={"tags": ["parameters"]}),
        new_code_cell(
            f"from pathlib import Path\nrun = Path({str(run.path)!r})", metadata=injected
        ),
        new_code_cell(head + "print('noise \\x1b[31m of a cell')"),
    ]
    built += [new_code_cell(code, metadata={"record": key}) for key, code in CELLS[stage]]
    built += [new_code_cell(code, metadata=metadata) for metadata, code in extra]
    notebook = new_notebook(cells=built, metadata={"kernelspec": KERNEL})
    NotebookClient(notebook, km=kernel, timeout=120, allow_errors=True).execute()
    path = run.path / f"{STAGES.index(stage) + 1:02}_{stage}.ipynb"
    nbformat.write(notebook, path)
    return path
