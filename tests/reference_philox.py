"""Philox4x32-10 (Salmon et al., 2011), in Python's integers."""

from __future__ import annotations

_MASK = 2**32 - 1


def philox(key: int, high: int, low: int) -> tuple[int, int, int, int]:
    """The four words of a counter, of which ``high`` and ``low`` are 64 bits each."""
    c = [low & _MASK, low >> 32, high & _MASK, high >> 32]
    k0, k1 = key & _MASK, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & _MASK, (p0 >> 32) ^ c[3] ^ k1, p0 & _MASK]
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c[0], c[1], c[2], c[3]
