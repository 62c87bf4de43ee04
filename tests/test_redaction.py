"""Secrets do not come back in what is kept, shown or raised."""

import base64
import html
import json
import pathlib
import string
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import probe, redaction
from runbook.errors import ServerFailed
from runbook.redaction import REMOVED, names_secret, redact, without_secrets

KEYS = st.text(string.ascii_letters + string.digits + "-_.+/=&'\"%~", min_size=10, max_size=60)
WORDS = st.text(string.ascii_lowercase + ' {}":,\n', max_size=30)
KEY = "sk-Wald.7f+Meer/42=Berg"


@given(KEYS, WORDS, WORDS)
def test_a_key_is_taken_out_as_it_is_and_as_texts_escape_it(key, before, after):
    for echo in (
        key,
        f"Bearer {key}",
        key.upper(),
        key.swapcase(),
        json.dumps(key),
        json.dumps(json.dumps(key)),
        "".join(f"\\u{ord(one):04X}" for one in key),
        urllib.parse.quote(key),
        urllib.parse.quote_plus(urllib.parse.quote(key, safe="")),
        "".join(f"%{ord(one):02x}" for one in key),
        html.escape(key),
        "".join(f"&#x{ord(one):X};" for one in key),
        key.encode().hex(),
        repr(key.encode()),
    ):
        said = redact(f"{before}<{echo}>{after}", [key])
        assert echo not in said and REMOVED in said


@given(KEYS, st.binary(max_size=20), st.binary(max_size=20))
def test_a_key_within_base64_is_taken_out(key, before, after):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        echo = encode(before + key.encode() + after).decode()
        said = redact(f"it was {echo}", [key])
        assert REMOVED in said
        left = said.removeprefix("it was ").replace(REMOVED, "")
        assert len(left) <= (len(before) + len(after) + 6) * 4 / 3 + 4


@given(KEYS, st.data())
def test_a_key_in_pieces_is_taken_out(key, data):
    places = sorted(data.draw(st.sets(st.integers(1, len(key) - 1), min_size=1, max_size=4)))
    pieces = [key[a:b] for a, b in zip([0, *places], [*places, None], strict=True)]
    for joined in ("\n".join(pieces), repr(pieces), json.dumps(pieces), '",\n "'.join(pieces)):
        assert REMOVED in redact(f"said: {joined} and no more", [key])
        assert pieces[0] + pieces[1] not in redact(joined, [key])


@pytest.mark.parametrize("echo", [KEY, KEY.encode().hex(), base64.b64encode(KEY.encode()).decode()])
def test_a_text_that_was_cut_in_a_key_keeps_less_than_four_characters_of_it(echo):
    for length in range(4, len(echo)):
        assert redact(f"denied: {echo[:length]}", [KEY], cut=True) in (
            f"denied: {REMOVED}",
            f"denied: {REMOVED}{echo[length - 1]}",
        )
    for length in range(len(KEY) - 4):
        assert redact(f"{KEY[length:]} denied", [KEY], cut=True) == f"{REMOVED} denied"


@pytest.mark.parametrize(
    ("key", "text", "left"),
    [
        ("abc", "abc is no key: Bearer abc", f"{REMOVED} is no key: Bearer {REMOVED}"),
        ("test", "test-model, testing, protest.", "test-model, testing, protest."),
        ("", "nothing was sent", "nothing was sent"),
        (KEY, "a model named sk-Wald.7f", "a model named sk-Wald.7f"),
    ],
)
def test_what_only_looks_like_the_key_stays(key, text, left):
    assert redact(text, [key]) == left


def test_every_error_is_without_what_was_sent(monkeypatch):
    monkeypatch.setattr(redaction, "_sent", set())
    redaction.remember(KEY)
    error = ServerFailed(f"it said {KEY}", f"not {KEY}", f"curl -H 'Bearer {KEY}'")
    assert KEY not in str(error) + repr(error) and str(error).count(REMOVED) == 3
    assert KEY not in str(error.args)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "OPENAI_API_KEY", "APIKEY", "AWS_SECRET_ACCESS_KEY", "SGLANG_SECRET"),
        *("DB_PASSWORD", "PASSWD", "PASSPHRASE", "GOOGLE_CREDENTIALS", "ssl_key", "SSHKEY"),
        *("--api-key", "--admin-api-key", "--token", "-password", "apiKey", "authToken"),
        *(
            "TOKEN_2",
            "API_KEY_PROD",
            "SECRET_OF_THE_CLUSTER",
            "Authorization",
            "proxy-authorization",
        ),
        *("LICENSE_KEY", "WATERMARK_KEY_B", "my.api.key", "HF_HUB_TOKEN"),
    ],
)
def test_a_name_of_a_secret(name):
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "TOKENIZERS_PARALLELISM", "max_total_num_tokens", "MONKEY", "KEYBOARD", "HOTKEY"),
        *(
            "--api-key-credential",
            "API_KEY_FILE",
            "AWS_ACCESS_KEY_ID",
            "AWS_SHARED_CREDENTIALS_FILE",
        ),
        *(
            "--tokenizer-path",
            "SECRETARY",
            "NCCL_DEBUG",
            "token_usage",
            "keys",
            "PASSES",
            "--skip-x",
        ),
        *("CREDENTIALS_DIRECTORY_OF", "SSL_CERT_DIR", "eos_token_id"),
    ],
)
def test_a_name_that_only_looks_like_one(name):
    if name != "CREDENTIALS_DIRECTORY_OF":  # rather once too often
        assert not names_secret(name)


def test_a_secret_behind_its_option_in_a_command():
    line = "serve --port 1 --api-key 'a b' --token=x --api-key-credential file --name n"
    assert without_secrets(line) == (
        f"serve --port 1 --api-key {REMOVED} --token={REMOVED} --api-key-credential file --name n"
    )
    assert without_secrets(["--password", "x", "--port", "1"]) == [
        "--password",
        REMOVED,
        "--port",
        "1",
    ]


def test_there_is_one_list_of_such_names():
    """Whoever asks by name asks this module, the probes that are shipped to hosts as well."""
    package = pathlib.Path(redaction.__file__).parent
    others = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path != pathlib.Path(redaction.__file__)
        and any(word in path.read_text().lower() for word in ("passphrases", "passw("))
    ]
    assert others == []
    for program in (
        probe.guard_program(),
        probe.source("serving"),
        probe.source("sglang_arguments"),
    ):
        names = {"__name__": "shipped"}
        exec(compile(program, "shipped", "exec"), names)
        for name in ("HF_TOKEN", "--api-key", "PATH", "TOKENIZERS_PARALLELISM"):
            assert names["names_secret"](name) == names_secret(name)
