"""What a file holds, packed or not: for the search for what it must not hold."""

import base64
import io
import re
import struct
import zipfile
import zlib

PNG = b"\x89PNG\r\n\x1a\n"
GZIP = b"\x1f\x8b"
PICTURE = re.compile(rb"iVBORw0KGgo[A-Za-z0-9+/=]+")


def contents(data):
    """``data`` itself, and what is packed in it: gzip, also one still being written; the members of
    a zip (npz); texts in a PNG; pictures within a notebook or a page."""
    yield data
    if data.startswith(GZIP):
        for part in _unzipped(data):
            yield from contents(part)
    elif data.startswith(PNG):
        yield from _texts_of(data)
    elif zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            for name in packed.namelist():
                yield name.encode()
                yield from contents(packed.read(name))
    for found in PICTURE.findall(data):
        yield from _texts_of(base64.b64decode(found + b"=" * (-len(found) % 4)))


def _unzipped(data):
    """Every member of a gzip file, the last one as far as it goes."""
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        yield member.decompress(data)
        data = member.unused_data


def _texts_of(png):
    """The texts of a PNG, packed ones too; of what is no whole chunk nothing is told."""
    at = len(PNG)
    while at + 8 <= len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        at += 12 + length
        if kind in (b"tEXt", b"iTXt", b"zTXt"):
            yield body
            for start in range(len(body) - 1):
                if body[start : start + 1] == b"\x78":
                    try:
                        yield zlib.decompress(body[start:])
                    except zlib.error:
                        continue
