"""The command on streams larger than memory, on a small one."""

from __future__ import annotations

from stream import little_memory


def test_a_compressed_pipe_trains_to_the_bits_of_plain_text():
    rows = 2 * little_memory.EVERY + 5
    assert little_memory.same_bits(rows)
    assert little_memory.problems(little_memory.through_pipe(rows, 2), rows) == []
