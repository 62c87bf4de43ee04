"""One typed, strict loader: every refusal names file, key, found, wanted and the nearest key."""

import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import params, strict_yaml
from runbook.errors import BadInput, ParameterError
from runbook.params import overrides

FILES = sorted((Path(__file__).parent.parent / "params").glob("*.yaml"))
MINIMAL = {
    "name": "mini",
    "server": {"engine": "llamacpp", "port": 18080, "model": "/m.gguf"},
    "configurations": [{"name": "baseline"}, {"name": "lean", "args": ["--spec"]}],
    "benchmark": {"concurrencies": [1, 8]},
    "choose": {"mix": [{"concurrency": 1, "share": 1}]},
    "service": {"unit": "mini.service"},
}


@pytest.fixture
def minimal(tmp_path):
    path = tmp_path / "mini.yaml"
    path.write_text(strict_yaml.dump(MINIMAL))
    return path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_shipped_file_loads_and_reads_back(path):
    loaded = params.load(path)
    assert params.from_values(strict_yaml.parse(loaded.to_yaml(), "x"), "x") == loaded


@pytest.mark.parametrize(
    ("override", "key", "found", "wanted", "near"),
    [
        ("server.prot=1", "server.prot", "unknown key", "port", "port"),
        ("record.document=/root/", "record.document", "/root/", "the path of a file", None),
        ("record.plan=", "record.plan", '""', "the path of a file", None),
        ("benchmark.concurrancies=[1]", "benchmark.concurrancies", "unknown", "", "concurrencies"),
        ("banchmark={}", "banchmark", "unknown key", "", "benchmark"),
        ('workload.ignore_eos="false"', "workload.ignore_eos", '"false" (str)', "boolean", None),
        ("server.port=0", "server.port", "0", "greater", None),
        ("server.port=65536", "server.port", "65536", "65535", None),
        ("server.port=007", "server.port", "007", "leading zeros", None),
        ("server.port=18080.5", "server.port", "18080.5", "integer", None),
        ("server.port='18080'", "server.port", '"18080"', "integer", None),
        ("benchmark.concurrencies=[0]", "benchmark.concurrencies[0]", "0", "greater", None),
        ("benchmark.concurrencies=[1,5000]", "benchmark.concurrencies[1]", "5000", "4096", None),
        ("benchmark.concurrencies=[1,1]", "benchmark", "twice", "", None),
        ("service.unit=foo", "service.unit", '"foo"', "service", None),
        ("service.unit=a b.service", "service.unit", "a b", "the name of a unit", None),
        ("service.unit=../x.service", "service.unit", "../x", "the name of a unit", None),
        ("service.unit=-x.service", "service.unit", "-x", "the name of a unit", None),
        ("service.unit=a:b.service", "service.unit", "a:b", "the name of a unit", None),
        (r"service.unit=a\x2db.service", "service.unit", "x2db", "the name of a unit", None),
        ("service.unit=x@1.service", "service.unit", "x@1", "the name of a unit", None),
        (f"service.unit={'x' * 193}.service", "service.unit", "xxx", "200", None),
        ("service.unit=x-boot.service", "service", "a recorder of boots", "", None),
        ("choose.mix[0].share=-1", "choose.mix[0].share", "-1", "greater", None),
        ("choose.mix[0].share=0", "choose", "sum to more than 0", "", None),
        ("choose.mix[0].share=.inf", "choose.mix[0].share", "", "finite", None),
        ("choose.mix[0].concurrency=4", "choose.mix", "C=4", "benchmark.concurrencies", None),
        (
            "choose.mix=[{concurrency: 1, share: 1}, {concurrency: 1, share: 2}]",
            "choose.mix",
            "twice",
            "once",
            None,
        ),
        ("choose.expected=laen", "choose.expected", "laen", "lean", "lean"),
        ("choose.prefer=[nobody]", "choose.prefer", "nobody", "baseline, lean", None),
        ("workload.mix={edit: 0}", "workload", "sum to more than 0", "", None),
        ("configurations[1].name=baseline", "configurations", "two named baseline", "differ", None),
        ("configurations[name=baseline].name=base", "configurations", "no baseline", "ref", None),
        ("configurations[name=laen].args=[]", "", "no such item", "baseline, lean", None),
        ("configurations[7].args=[]", "", "no such item", "baseline, lean", None),
        ("name=", "name", '""', "a name of", None),
        ("name=../../etc", "name", "../../etc", "a name of", None),
        ("host.kind=cloud", "host.kind", '"cloud"', "'local'", None),
        ("host.kind=ssh", "host", "ssh needs one", "", None),
        ("server.cwd=relative", "server.cwd", "relative", "an absolute path", None),
        ("server.user=Bob Smith", "server.user", "Bob", "the name of a user", None),
        ("server.address=not an address", "server.address", "not an", "IP address", None),
        (
            "choose.override={choose: lean, reason: '    ', by: Ada}",
            "choose.override.reason",
            "",
            "at least 3",
            None,
        ),
    ],
)
def test_refused(minimal, override, key, found, wanted, near):
    with pytest.raises(ParameterError) as caught:
        params.load(minimal, [override])
    error = caught.value
    assert error.exit_code == 2
    assert found in str(error)
    assert wanted in str(error)
    assert key in str(error)
    assert error.near == near


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b"])
def test_an_environment_value_in_one_line(value):
    values = copy.deepcopy(MINIMAL)
    values["server"]["env"] = {"A": value}
    with pytest.raises(ParameterError, match=r"server\.env"):
        params.from_values(values, "x")


@pytest.mark.parametrize("name", ["", "A B", "1A", "A=B", "A-B"])
def test_an_environment_name(name):
    values = copy.deepcopy(MINIMAL)
    values["configurations"][0]["env"] = {name: "x"}
    with pytest.raises(ParameterError, match="env"):
        params.from_values(values, "x")


@pytest.mark.parametrize("key", ["name", "server", "configurations", "benchmark", "choose"])
def test_a_required_key(key):
    values = {name: value for name, value in MINIMAL.items() if name != key}
    with pytest.raises(ParameterError, match="required") as caught:
        params.from_values(values, "x")
    assert caught.value.key == key


def test_all_faults_are_listed():
    values = copy.deepcopy(MINIMAL)
    values["server"]["port"] = "x"
    values["nmae"] = 1
    with pytest.raises(ParameterError) as caught:
        params.from_values(values, "x")
    assert "server.port" in str(caught.value)
    assert "nmae" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[]", "7", "text"])
def test_a_file_that_is_no_mapping(tmp_path, content):
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(ParameterError, match=r"x\.yaml"):
        params.load(path)


@pytest.mark.parametrize(
    ("override", "source"),
    [
        ("server.port=99999", "-p server.port=99999: server.port: "),
        ("nonsense=1", "-p nonsense=1: nonsense: "),
        ("choose={mix: [{concurrency: 1, share: -1}]}", "-p choose={mix: "),
        ("configurations[name=lean].name=a b", "-p configurations[name=lean].name=a b: config"),
    ],
)
def test_a_fault_is_of_the_option_that_brought_it(minimal, override, source):
    with pytest.raises(ParameterError) as caught:
        params.load(minimal, [override, "server.address=127.0.0.1"])
    assert str(caught.value).startswith(source)
    assert caught.value.do.endswith(f"in -p {override}") or "did you mean" in caught.value.do


def test_a_fault_of_the_file_is_not_of_an_option(minimal):
    minimal.write_text(strict_yaml.dump(MINIMAL | {"name": ""}))
    with pytest.raises(ParameterError) as caught:
        params.load(minimal, ["server.port=18081"])
    assert str(caught.value).startswith(f"{minimal}: name: ")


def test_overrides_are_typed_by_their_target(minimal):
    loaded = params.load(
        minimal,
        [
            "name=007",
            "server.model=true",
            "server.env.FLAG=false",
            "configurations[name=lean].label=a = b",
            "configurations[1].args=[--x, '1']",
            "choose.mix[0].share=2",
            "choose.margin=1e-1",
            "workload.ignore_eos=true",
            "choose.override={choose: lean, reason: window, by: me}",
            "record.document=null",
        ],
    )
    assert loaded.name == "007"
    assert loaded.server.model == "true"
    assert loaded.server.env == {"FLAG": "false"}
    assert loaded.configuration("lean").label == "a = b"
    assert loaded.configuration("lean").args == ["--x", "1"]
    assert loaded.choose.margin == 0.1
    assert loaded.workload.ignore_eos is True
    assert loaded.choose.override is not None
    assert loaded.record.document is None


@pytest.mark.parametrize("override", ["", "=", "server.port", "a..b=1", ".a=1", "a[=1", "name.x=1"])
def test_an_override_that_is_none(minimal, override):
    with pytest.raises(ParameterError):
        params.load(minimal, [override])


@given(st.text(max_size=40))
def test_any_override_is_taken_or_refused_in_our_words(text):
    values = copy.deepcopy(MINIMAL)
    try:
        overrides.apply_override(values, text)
        params.from_values(values, "x")
    except ParameterError as error:
        assert error.exit_code == 2


@given(st.dictionaries(st.sampled_from(sorted(params.Params.model_fields)), st.none() | st.text()))
def test_any_values_are_taken_or_refused_in_our_words(values):
    with pytest.raises(ParameterError):
        params.from_values(values, "x")


def test_identity_leaves_out_what_does_not_change_the_measurement(minimal):
    before = params.load(minimal)
    same = params.load(minimal, ["choose.margin=0.5", "service.burst=7", "record.plan=/p.md"])
    other = params.load(minimal, ["workload.output_tokens=65"])
    assert before.identity() == same.identity()
    assert before.identity() != other.identity()


def test_an_unknown_configuration_names_the_nearest(minimal):
    with pytest.raises(BadInput, match="use lean"):
        params.load(minimal).configuration("laen")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("choose.looks=[5, 3]", "looks must ascend"),
        ("choose.looks=[3, 5]", "a last look at all blocks"),
        ("choose.looks=[2, 3]", "greater than or equal to 3"),
        ("benchmark.window=steady", ""),
    ],
)
def test_looks_and_windows(minimal, override, said):
    if said:
        with pytest.raises(ParameterError, match=said):
            params.load(minimal, [override])
    else:
        assert params.load(minimal, [override]).benchmark.window == "steady"
        with pytest.raises(ParameterError, match="2 rounds or more"):
            params.load(minimal, [override, "benchmark.rounds=1"])
    assert params.load(minimal, ["choose.looks=[3]"]).choose.looks == [3]


def test_the_system_message_lies_beside_the_parameters(minimal):
    loaded = params.load(minimal, ["workload.system=system.txt"])
    assert loaded.workload.system == str(minimal.parent / "system.txt")
    assert loaded.workload.prompts == "builtin"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "fe80::1%eth0", "gpu-host.example"])
def test_every_form_of_address_is_taken(address):
    values = copy.deepcopy(MINIMAL)
    values["server"]["address"] = address
    assert params.from_values(values, "x").server.address == address


@pytest.mark.parametrize("address", ["-x", "::-x", ":1", "a b", "", ".", "::/0"])
def test_what_is_no_address_is_refused(address):
    values = copy.deepcopy(MINIMAL)
    values["server"]["address"] = address
    with pytest.raises(ParameterError, match="an IP address or a host name"):
        params.from_values(values, "x")


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "0", "00.0", "0x0", "::0", "::ffff:0.0.0.0"])
def test_all_addresses_without_a_key_only_where_the_parameters_say_so(address):
    values = copy.deepcopy(MINIMAL)
    values["server"]["address"] = address
    with pytest.raises(ParameterError, match="listens on all addresses without a key") as refused:
        params.from_values(values, "x")
    assert "server.open_to_all: true" in str(refused.value)
    for allowed in ({"open_to_all": True}, {"api_key": {"file": "/etc/key"}}):
        server = {**values["server"], **allowed}
        assert params.from_values({**values, "server": server}, "x").server.address == address
