"""A secret is found wherever a file of a run could hide it."""

import base64
import gzip
import io
import json
import struct
import zipfile
import zlib

import pytest
from unpacking import PNG, contents

KEY = b"3f9c0e5a77d1"


def picture(kind, body):
    chunk = struct.pack(">I4s", len(body), kind) + body + bytes(4)
    return PNG + struct.pack(">I4s", 4, b"IHDR") + bytes(8) + chunk


def zipped():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("array.npy", b"\x93NUMPY" + KEY)
    return data.getvalue()


def notebook():
    shown = base64.b64encode(picture(b"zTXt", b"Comment\0\0" + zlib.compress(KEY))).decode()
    return json.dumps({"cells": [{"outputs": [{"data": {"image/png": shown}}]}]}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"x=" + KEY,
        gzip.compress(b"first") + gzip.compress(b"a line\n" + KEY + b"\n"),
        gzip.compress(b"a line\n" + KEY * 9)[:-8],
        zipped(),
        picture(b"tEXt", b"Author\0" + KEY),
        picture(b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(KEY)),
        notebook(),
        json.dumps({"metadata": {"papermill": {"parameters": {"k": KEY.decode()}}}}).encode(),
    ],
    ids=["plain", "gzip", "gzip-being-written", "npz", "png", "png-packed", "picture", "metadata"],
)
def test_it_is_found(data):
    assert any(KEY in part for part in contents(data))
    other = b"0" * len(KEY)
    assert not any(other in part for part in contents(data))
