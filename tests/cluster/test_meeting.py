"""What members of a ring tell each other before a library sums for them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster.alike import ring

from leashed.cluster.meeting import all_gather


@pytest.mark.parametrize("members", [2, 3, 7])
def test_all_have_the_texts_of_all_by_rank(members):
    texts = [f"θ{rank}" * (rank % 3) for rank in range(members)]

    def one(rank, behind, ahead):
        with behind, ahead:
            return all_gather(behind, ahead, texts[rank], rank=rank, members=members, timeout=60.0)

    with ThreadPoolExecutor(members) as pool:
        found = list(pool.map(one, range(members), *zip(*ring(members), strict=True)))
    assert found == [texts] * members


@pytest.mark.parametrize("said", [b"\x03\x00ab", b"\xff\xff" + b"a" * 400, b"\x02\x00\xff\xfe"])
def test_what_is_no_text_is_an_error(said):
    behind, before = socket.socketpair()
    ahead, after = socket.socketpair()
    with behind, ahead, after:
        before.sendall(said)
        before.close()
        with pytest.raises(ConnectionError, match=r"else has come|has closed"):
            all_gather(behind, ahead, "text", rank=0, members=2, timeout=60.0)


def test_a_member_that_says_nothing_is_waited_for_until_the_deadline():
    behind, before = socket.socketpair()
    ahead, after = socket.socketpair()
    with behind, ahead, before, after:
        before.sendall(b"\x04\x00ab")
        with pytest.raises(TimeoutError):
            all_gather(behind, ahead, "text", rank=0, members=2, timeout=0.1)


def test_a_text_that_is_too_long_is_refused():
    behind, ahead = socket.socketpair()
    with behind, ahead, pytest.raises(ValueError, match="a text may have 256 bytes, not 257"):
        all_gather(behind, ahead, "a" * 257, rank=0, members=2, timeout=0.1)
