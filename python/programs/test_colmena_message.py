"""How a value of Colmena's becomes an event, and an event a value."""

import pickle
import random
from binascii import hexlify

import numpy as np
import pytest

pytest.importorskip("colmena")

from colmena.models import Result, SerializationMethod

from thalweg._thalweg import _unhex
from thalweg.integrations import _colmena_message as message


@pytest.mark.parametrize("length", [0, 1, 15, 1000, 70_000, 200_001])
def test_digits_are_those_of_python(length: int) -> None:
    content = random.Random(length).randbytes(length)
    digits = hexlify(content).decode()
    assert _unhex(digits) == _unhex(digits.upper()) == content


@pytest.mark.parametrize("length", [2, 200_000])
@pytest.mark.parametrize("other", [chr(code) for code in (*range(0x30), *range(0x3a, 0x41), 0x47, 0x60, 0x67, 0x7f, 0xe4)])
def test_what_is_no_digit_is_refused(length: int, other: str) -> None:
    for at in (0, length // 2 - 1, length - 1):
        with pytest.raises(ValueError, match="hexadecimal"):
            _unhex("a" * at + other + "a" * (length - at - 1))


def test_half_a_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        _unhex("abc")


@pytest.mark.parametrize("value", [
    None, b"", b"short", b"long" * 100_000, bytearray(b"mine" * 100_000), "text" * 100_000,
    {"name": b"a" * 200_000, "other": [b"b" * 200_000, b"short"]}, np.arange(100_000),
    [bytes([index]) * 70_000 for index in range(100)], list(range(100_000)),
], ids=lambda value: type(value).__name__)
def test_pieces_are_the_pickle(value: object) -> None:
    pieces = message.pickled(value)
    assert b"".join(pieces) == pickle.dumps(value)
    assert all(type(piece) is bytes for piece in pieces)
    assert len(pieces) <= 64


def test_large_bytes_are_a_piece_as_they_are() -> None:
    content = bytes(1 << 20)
    assert any(piece is content for piece in message.pickled((1, content)))


def test_a_value_comes_back_whichever_form_it_had() -> None:
    content = random.Random(5).randbytes(300_000)
    method = SerializationMethod.PICKLE
    result = Result(((content,), {"name": "n"}), topic="default", serialization_method=method)
    parts = [message.pickled(content), message.pickled("n")]
    sent = message.from_parts(result, parts, "default", exclude_none=True)
    data = memoryview(b"".join(sent.data))
    headers = {name: text.encode() for name, text in sent.headers.items()}
    task = message.result_of(sent.metadata, headers, data)
    assert task.inputs == ((pickle.dumps(content).hex(),), {"name": pickle.dumps("n").hex()})
    task.deserialize()
    assert task.inputs == ((content,), {"name": "n"})
    # As a task server sends it: its value is digits.
    task.set_result(content, 1.0)
    task.serialize()
    sent = message.from_result(task, "default")
    headers = {name: text.encode() for name, text in sent.headers.items()}
    data = memoryview(b"".join(sent.data))
    assert message.result_of(sent.metadata, headers, data, load=True).value == content
