"""Rows that were packed as columns come back to the last digit, whatever they hold."""

import json

from hypothesis import given
from hypothesis import strategies as st

from edgc.report import archive

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MICROSECONDS = st.integers(-(10**9), 10**9).map(lambda count: count / 1e6)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(), FLOATS, MICROSECONDS)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.one_of(VALUES, FLOATS))))
def test_rows_of_any_kind_come_back(rows: list[dict]) -> None:
    assert json.dumps(archive.unpack_rows(archive.pack_rows(rows))) == json.dumps(rows)


@given(st.lists(st.tuples(FLOATS, MICROSECONDS)))
def test_columns_of_numbers_come_back(rows: list[tuple[float, float]]) -> None:
    told = [{"loss": loss, "t_step": seconds} for loss, seconds in rows]
    assert json.dumps(archive.unpack_rows(archive.pack_rows(told))) == json.dumps(told)


def test_times_in_microseconds_take_two_bytes_each() -> None:
    packed = archive.pack_rows([{"t_step": i / 1e6} for i in range(1000)])
    assert len(packed.split(b"\n", 1)[1].replace(b"\0", b"")) < 2 * 1000
