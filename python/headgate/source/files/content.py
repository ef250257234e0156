"""The bytes of text files: how they are compressed, and how they encode text."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.source.files.listing import Files

#: Suffix of a name, in any case -> pyarrow's name of the compression.
_SUFFIXES: Final = {".bz2": "bz2", ".gz": "gzip", ".lz4": "lz4", ".zst": "zstd"}
#: Place and bytes in the head of a file -> its compression, and the suffix that a source knows it by.
_MAGIC: Final = {
    (0, b"\x1f\x8b\x08"): ("gzip", ".gz"),
    (4, b"1AY&SY"): ("bzip2", ".bz2"),
    (0, b"\x04\x22\x4d\x18"): ("lz4", ".lz4"),
    (0, b"\x28\xb5\x2f\xfd"): ("zstd", ".zst"),
    (0, b"PK\x03\x04"): ("zip", ""),
    (0, b"\xfd7zXZ\x00"): ("xz", ""),
}
#: Marks at the begin of a file, the longer ones first -> its encoding.
_MARKS: Final = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HEAD: Final = 16
#: ASCII, and sequences of it that mean something else in encodings with escapes.
_PROBE: Final = bytes({*range(128)} - {92}) + rb"\n\u0041" + b"\x1b$B!!\x1b(B\x0e!\x0f~{!!~}+AGE-"
_UTF_8: Final = "utf-8"
_TO_UTF_8: Final = "write the file as UTF-8"


class ContentError(ValueError):
    """A file has other bytes than its name or the options say.

    Args:
        text: continues "it cannot be read:".
        remedy: ways out.
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def compression_of(path: str) -> str | None:
    """Return pyarrow's name of the compression that a file's name says; None if it says none."""
    lower = path.lower()
    return next((kind for suffix, kind in _SUFFIXES.items() if lower.endswith(suffix)), None)


def is_compressed(path: str) -> bool:
    """Return True if the name of a file has the suffix of a compressed one."""
    return compression_of(path) is not None


def open_decompressed(files: Files, path: str) -> Any:
    """Open a file as a stream of its bytes without the compression that its name says."""
    return files.filesystem.open_input_stream(path, compression=compression_of(path))


def check_head(files: Files, path: str, encoding: str = _UTF_8, encodes: str = _TO_UTF_8) -> None:
    """Look at the first bytes of a file whose name says no compression.

    Args:
        files: opens the file.
        path: of the file.
        encoding: of the file.
        encodes: the remedy if the encoding is another one.

    Raises:
        ContentError: the file is compressed, or encoded as UTF-16 or UTF-32.
    """
    if is_compressed(path):
        return
    with files.filesystem.open_input_stream(path, compression=None) as stream:
        head = bytes(stream.read(_HEAD))
    for (place, magic), (kind, suffix) in _MAGIC.items():
        if head.startswith(magic, place):
            text = f"it is compressed with {kind}, and its name does not end in {suffix}"
            raise ContentError(
                text if suffix else f"it is compressed with {kind}, which a source cannot undo",
                f"rename it to *{suffix}" if suffix else "decompress it · compress it with gzip",
            )
    if is_utf_8(encoding):
        wide = _wide_encoding(head)
        if wide:
            raise ContentError(
                f"it seems to be {wide.upper()}, not UTF-8", encodes.format(wide, wide)
            )


def extends_ascii(encoding: str) -> bool:
    """Return True if each byte below 128 is that character of ASCII, wherever it is."""
    try:
        return _PROBE.decode(encoding) == _PROBE.decode("ascii")
    except UnicodeError:
        return False


def is_utf_8(encoding: str) -> bool:
    """Return True for all names of UTF-8."""
    return codecs.lookup(encoding).name == _UTF_8


def is_of_encoding(error: BaseException) -> bool:
    """Return True for an error of bytes that are not of the encoding, also one of pyarrow's."""
    return isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error)


def _wide_encoding(head: bytes) -> str:
    """Return the name of an encoding with zero bytes beside those of ASCII; "" if it is none."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if len(head) >= 4:  # without a mark
        for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
            if not any(zeros) and any(head):
                return name
    return ""
