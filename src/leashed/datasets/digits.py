"""Handwritten-looking digits, drawn from a seed: the data set that needs no files.

A glyph is a few strokes through control points; every class has several glyphs, as people have
several ways to write it. For each image a glyph is chosen, its control points are jittered, and
the whole is turned, sheared, stretched, shifted and bent. The strokes are curves cut into straight
segments, and a pixel's ink depends on its distance to the nearest one: full within the pen's
radius, none beyond, with a ramp between as wide as the blur. Noise and 8-bit rounding come last.

Images come in chunks of a fixed size. All randomness of a chunk is one block of raw Philox words
with the key (seed, training or test) and the chunk's number as the counter, so that an image
depends on the seed and on its index, not on how many are asked for. Raw words are the part of
NumPy's generators that is promised never to change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leashed.base import checks
from leashed.datasets.dataset import Dataset, Split

_SIDE = 28
_CLASSES = 10
_CHUNK = 200
_CURVE_SEGMENTS = 3

# Tuned so that with 10,000 images a linear model stays 10 points and more behind a small MLP, and
# that an MLP initialised by N(0, 0.01) leaves its plateau after about as many steps as on MNIST.
# Glyph units (a digit is 6 by 10):
_JITTER = 0.5
_BEND = 0.9
_BEND_FREQUENCIES = (0.6, 0.8)
# Pixels per glyph unit:
_WIDTH = (1.3, 2.2)
_HEIGHT = (1.5, 2.2)
# Radians, and x per y:
_TURN = 0.3
_SHEAR = 0.3
# Pixels:
_SHIFT = 2.0
_RADIUS = (1.1, 2.1)
_BLUR = (0.6, 1.4)
# Brightness:
_INK = (0.8, 1.0)
_NOISE = 0.06


_Points = tuple[tuple[float, float], ...]


class _Glyph(NamedTuple):
    """One way to write a digit: points (x right, y down), and strokes as indices of points.

    A stroke of two points is straight, a longer one a smooth curve through its points, closed
    when it ends where it begins.
    """

    points: _Points
    strokes: tuple[tuple[int, ...], ...]


def _ring(cx: float, cy: float, rx: float, ry: float, count: int) -> _Points:
    """Points around an ellipse, from the top, clockwise."""
    turns = (2 * math.pi * k / count for k in range(count))
    return tuple((cx + rx * math.sin(t), cy - ry * math.cos(t)) for t in turns)


# In a box of 6 by 10.
_GLYPHS: tuple[tuple[_Glyph, ...], ...] = (
    (
        _Glyph(_ring(3, 5, 3, 5, 8), ((0, 1, 2, 3, 4, 5, 6, 7, 0),)),
        _Glyph(_ring(3, 5, 2.2, 4.6, 6), ((0, 1, 2, 3, 4, 5, 0),)),
        _Glyph((*_ring(3, 5, 3, 4.8, 6), (4.6, 1.2), (1.4, 8.8)), ((0, 1, 2, 3, 4, 5, 0), (6, 7))),
        _Glyph(
            ((3.6, 0.2), (0.4, 2.6), (0.6, 7.6), (3, 10), (5.6, 7.4), (5.6, 3), (2.4, 0.6)),
            ((0, 1, 2, 3, 4, 5, 6),),
        ),
    ),
    (
        _Glyph(((3, 0), (3, 10)), ((0, 1),)),
        _Glyph(((1.2, 2.4), (3.4, 0), (3.4, 10)), ((0, 1), (1, 2))),
        _Glyph(((1.4, 2), (3, 0), (3, 10), (1, 10), (5, 10)), ((0, 1), (1, 2), (3, 4))),
        _Glyph(((3.6, 0), (3, 5), (2.6, 10)), ((0, 1, 2),)),
    ),
    (
        _Glyph(
            ((0.3, 2.6), (2.8, 0), (5.6, 2.6), (3.6, 6.2), (0, 10), (6, 10)),
            ((0, 1, 2, 3, 4), (4, 5)),
        ),
        _Glyph(
            ((0.4, 1.6), (3, 0), (5.2, 2.2), (3.8, 6), (1.4, 9.4), (0.2, 8.6), (2, 7.8), (6, 9.8)),
            ((0, 1, 2, 3, 4, 5, 6, 7),),
        ),
        _Glyph(((0.4, 0.6), (4.6, 0.6), (5, 4), (0.4, 9.6), (5.8, 9.2)), ((0, 1, 2, 3), (3, 4))),
    ),
    (
        _Glyph(
            ((0.4, 1.4), (3, 0), (5.2, 2.2), (2.2, 4.7), (5.8, 7.4), (3, 10), (0, 8.6)),
            ((0, 1, 2, 3), (3, 4, 5, 6)),
        ),
        _Glyph(
            ((0.4, 0.2), (5.4, 0.2), (2.4, 4.2), (5.6, 7), (3.2, 10), (0, 8.8)),
            ((0, 1), (1, 2), (2, 3, 4, 5)),
        ),
        _Glyph(
            ((0.8, 0.8), (4.4, 0.6), (4.6, 3.6), (2.6, 4.8), (5, 5.6), (5.2, 8.8), (0.4, 9.6)),
            ((0, 1, 2, 3, 4, 5, 6),),
        ),
    ),
    (
        _Glyph(((1.4, 0), (0.4, 5.6), (6, 5.6), (4.4, 1.6), (4.4, 10)), ((0, 1), (1, 2), (3, 4))),
        _Glyph(((4.4, 0), (0, 6.8), (6, 6.8), (4.4, 10)), ((0, 1), (1, 2), (0, 3))),
        _Glyph(
            ((0.8, 0.2), (0.4, 4.2), (2.4, 5.6), (5.2, 4.2), (5.4, 0), (5, 10)),
            ((0, 1, 2, 3), (4, 5)),
        ),
    ),
    (
        _Glyph(
            ((5.6, 0.2), (1, 0.2), (0.6, 4.4), (3.6, 3.8), (5.8, 6.8), (3.2, 10), (0, 8.8)),
            ((0, 1), (1, 2), (2, 3, 4, 5, 6)),
        ),
        _Glyph(
            ((5.6, 0.6), (2, 0.8), (1, 3.6), (4.2, 5), (5.4, 7.8), (3, 10), (0.2, 9.2)),
            ((0, 1, 2, 3, 4, 5, 6),),
        ),
        _Glyph(
            ((1.4, 0), (1, 4.6), (4, 4.4), (5.4, 7.4), (2.6, 10), (0.2, 8.8), (5.6, 0)),
            ((0, 1), (1, 2, 3, 4, 5), (0, 6)),
        ),
    ),
    (
        _Glyph(
            ((4.8, 0.2), (1.4, 3.2), (0.2, 7.2), (2.8, 10), (5.6, 7.6), (3.2, 5.2), (0.6, 7)),
            ((0, 1, 2, 3, 4, 5, 6),),
        ),
        _Glyph(
            ((1, 0), (0.4, 6.8), (2.8, 10), (5.4, 7.6), (3, 5.4)),
            ((0, 1), (1, 2, 3, 4, 1)),
        ),
        _Glyph(
            ((5.4, 1.6), (3, 0), (0.6, 3), (0.4, 7.6), (3, 10), (5.6, 7.4), (3.2, 5), (0.8, 6.8)),
            ((0, 1, 2, 3, 4, 5, 6, 7),),
        ),
    ),
    (
        _Glyph(((0.2, 0.4), (5.8, 0.4), (2.2, 10)), ((0, 1), (1, 2))),
        _Glyph(
            ((0.2, 0.4), (5.6, 0.4), (2.4, 10), (1.4, 5), (5.4, 5)),
            ((0, 1), (1, 2), (3, 4)),
        ),
        _Glyph(
            ((0.4, 1.8), (0.6, 0.4), (5.8, 0.4), (3.6, 4.6), (2.8, 10)),
            ((0, 1), (1, 2), (2, 3, 4)),
        ),
    ),
    (
        _Glyph(
            (*_ring(3, 2.4, 2.3, 2.4, 4), *_ring(3, 7.4, 2.9, 2.6, 4)),
            ((0, 1, 2, 3, 0), (4, 5, 6, 7, 4)),
        ),
        _Glyph(
            ((5, 1.4), (2.6, 0), (0.6, 2.2), (3, 4.8), (5.6, 7.6), (3, 10), (0.4, 7.8), (3.2, 4.6)),
            ((0, 1, 2, 3, 4, 5, 6, 7, 0),),
        ),
        _Glyph(
            (*_ring(3.4, 2.6, 1.9, 2.6, 4), *_ring(2.8, 7.6, 2.4, 2.4, 4)),
            ((0, 1, 2, 3, 0), (4, 5, 6, 7, 4)),
        ),
    ),
    (
        _Glyph(
            ((5.4, 2.6), (3, 0), (0.4, 2.6), (2.8, 5.2), (5.2, 9.8)),
            ((0, 1, 2, 3, 0), (0, 4)),
        ),
        _Glyph(
            ((5.2, 3), (3, 5), (0.4, 2.6), (3, 0), (5.4, 2), (5.2, 6.6), (3.4, 9.8), (0.6, 9)),
            ((0, 1, 2, 3, 4, 5, 6, 7),),
        ),
        _Glyph(
            ((5, 1.2), (2.8, 0), (0.6, 2.6), (2.6, 5), (4.8, 3.2), (4.4, 6.8), (3, 10)),
            ((0, 1, 2, 3, 4, 0), (0, 5, 6)),
        ),
    ),
)


@dataclass(frozen=True, eq=False)
class _Pen:
    """All glyphs as matrices: control points to the ends of segments.

    Attributes:
        first: int64 [classes], the number of each class's first glyph.
        count: int64 [classes], how many it has.
        points: float32 [glyphs, P, 2], around the origin; unused ones are 0.
        starts, ends: float32 [glyphs, S, P], a segment's ends as weights of the points.
        segments: int64 [glyphs], how many of the S it has.
    """

    first: NDArray[np.int64]
    count: NDArray[np.int64]
    points: NDArray[np.float32]
    starts: NDArray[np.float32]
    ends: NDArray[np.float32]
    segments: NDArray[np.int64]


def _curve_weights(stroke: tuple[int, ...], width: int) -> NDArray[np.float64]:
    """Weights [m + 1, width] of the points along a stroke (Catmull-Rom, ends reflected)."""
    eye = np.eye(width)
    knots = [eye[k] for k in stroke]
    if len(stroke) == 2:
        return np.array(knots)
    closed = stroke[0] == stroke[-1]
    before = knots[-2] if closed else 2 * knots[0] - knots[1]
    after = knots[1] if closed else 2 * knots[-1] - knots[-2]
    p = np.array([before, *knots, after])
    weights = [knots[0]]
    for k in range(len(stroke) - 1):
        a, b, c, d = p[k : k + 4]
        for step in range(1, _CURVE_SEGMENTS + 1):
            t = step / _CURVE_SEGMENTS
            weights.append(
                b
                + t / 2 * (c - a)
                + t**2 * (a - 2.5 * b + 2 * c - d / 2)
                + t**3 * (1.5 * (b - c) + (d - a) / 2)
            )
    return np.array(weights)


def _make_pen() -> _Pen:
    glyphs = [glyph for variants in _GLYPHS for glyph in variants]
    width = max(len(glyph.points) for glyph in glyphs)
    curves = [[_curve_weights(stroke, width) for stroke in glyph.strokes] for glyph in glyphs]
    starts = [np.concatenate([curve[:-1] for curve in strokes]) for strokes in curves]
    ends = [np.concatenate([curve[1:] for curve in strokes]) for strokes in curves]
    segments = np.array(list(map(len, starts)))
    points = np.zeros((len(glyphs), width, 2), np.float32)
    for number, glyph in enumerate(glyphs):
        points[number, : len(glyph.points)] = np.array(glyph.points) - (3, 5)

    def padded(weights: list[NDArray[np.float64]]) -> NDArray[np.float32]:
        return np.array(
            [np.pad(w, ((0, segments.max() - len(w)), (0, 0))) for w in weights], np.float32
        )

    count = np.array([len(variants) for variants in _GLYPHS])
    return _Pen(np.cumsum(count) - count, count, points, padded(starts), padded(ends), segments)


_PEN = _make_pen()


def synthetic_digits(n: int = 10_000, seed: int = 0, test: int = 2_000) -> Split:
    """Draw a seeded set of 28×28 digits, ten classes in equal parts, pixels in [0, 1].

    A stand-in for MNIST that needs no files: strokes with varied writing styles, placement,
    thickness and noise. Image i of a seed is the same whatever ``n`` is, and the test images come
    from a stream of their own. (Between machines a pixel may differ by 1/255, where rounding does.)
    About 0.1 ms an image.

    Args:
        n: Number of training images, at least 1.
        seed: From 0 to 2⁶⁴ - 1.
        test: Number of test images, at least 1.

    Returns:
        ``Split(train, test)``: x float32 [n, 784] in steps of 1/255, y int32, 10 classes,
        image_shape (1, 28, 28).

    Raises:
        TypeError: An argument is not a whole number.
        ValueError: An argument is out of range.
    """
    n = checks.whole("n", n)
    seed = checks.whole("seed", seed, 0, 2**64 - 1)
    test = checks.whole("test", test)
    name = f"synthetic_digits(seed={seed})"
    return Split(_draw(n, seed, 0, f"{name}/train"), _draw(test, seed, 1, f"{name}/test"))


def _draw(n: int, seed: int, stream: int, name: str) -> Dataset:
    x = np.empty((n, _SIDE * _SIDE), np.float32)
    y = np.empty(n, np.int32)
    for chunk, begin in enumerate(range(0, n, _CHUNK)):
        size = min(_CHUNK, n - begin)
        images, labels = _draw_chunk(seed, stream, chunk, size)
        x[begin : begin + size] = images
        y[begin : begin + size] = labels
    return Dataset(x, y, _CLASSES, name, (1, _SIDE, _SIDE))


def _draw_chunk(
    seed: int, stream: int, chunk: int, size: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The first ``size`` images [size, 784] and labels [size] of one chunk."""
    width = _PEN.points.shape[1]
    choices = 15 + 2 * width
    noise_words = _SIDE * _SIDE // 8
    bits = np.random.Philox(
        counter=np.array([0, chunk, 0, 0], np.uint64), key=np.array([seed, stream], np.uint64)
    )
    words = bits.random_raw(_CHUNK * (choices + noise_words)).reshape(_CHUNK, -1)
    labels = np.argsort(words[:, 0], kind="stable")[:size] % _CLASSES
    words = words[:size]
    # One choice a column, uniform in [-1, 1).
    u = (words[:, 1:choices] >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - 1
    noise = np.ascontiguousarray(words[:, choices:]).view(np.uint8).astype(np.float32)

    variant = (_span(u[:, 0], 0, 1) * _PEN.count[labels]).astype(np.int64)
    glyph = _PEN.first[labels] + variant
    points = _PEN.points[glyph] + np.float32(_JITTER) * u[:, 14:].reshape(size, width, 2)
    points = _place(points, u[:, 1:11])
    starts, ends = np.matmul(_PEN.starts[glyph], points), np.matmul(_PEN.ends[glyph], points)
    squared = _squared_distance(starts, ends, _PEN.segments[glyph])
    distance = np.sqrt(squared).reshape(size, -1)

    radius, blur = _span(u[:, 11, None], *_RADIUS), _span(u[:, 12, None], *_BLUR)
    images = np.clip((radius - distance) / blur + np.float32(0.5), 0, 1)
    images *= _span(u[:, 13, None], *_INK)
    images += np.float32(_NOISE) * (noise / np.float32(127.5) - 1)
    return np.rint(np.clip(images, 0, 1) * 255) / np.float32(255), labels


def _place(points: NDArray[np.float32], u: NDArray[np.float32]) -> NDArray[np.float32]:
    """Points [size, P, 2] of glyphs into pixels, by choices u [size, 10].

    In this order: bent by a sine along either axis, stretched, sheared, turned, shifted.
    """
    x, y = points[..., 0], points[..., 1]
    choice = iter(u.T[:, :, None])
    for_x, for_y = _BEND_FREQUENCIES
    x = x + _BEND * next(choice) * np.sin(for_x * y + np.float32(np.pi) * next(choice))
    y = y + _BEND * next(choice) * np.sin(for_y * x + np.float32(np.pi) * next(choice))
    x = x * _span(next(choice), *_WIDTH)
    y = y * _span(next(choice), *_HEIGHT)
    x = x + _SHEAR * next(choice) * y
    turn = _TURN * next(choice)
    cos, sin = np.cos(turn), np.sin(turn)
    middle = (_SIDE - 1) / 2
    across = cos * x - sin * y + middle + _SHIFT * next(choice)
    down = sin * x + cos * y + middle + _SHIFT * next(choice)
    return np.stack([across, down], axis=-1)


def _span(u: NDArray[np.float32], low: float, high: float) -> NDArray[np.float32]:
    """From [-1, 1) to [low, high)."""
    return np.float32((high - low) / 2) * u + np.float32((high + low) / 2)


def _squared_distance(
    starts: NDArray[np.float32], ends: NDArray[np.float32], segments: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Squared distance [size, 28, 28] of each pixel (y, x) to the nearest of so many segments [size]
    of [size, S, 2].

    With q = pixel - start, v = end - start and t = clip(q·v / |v|², 0, 1), the squared distance
    is |q|² + |v|² t (t - 2 q·v / |v|²).
    """
    most_first = np.argsort(-segments, kind="stable")
    starts, ends, segments = starts[most_first], ends[most_first], segments[most_first]
    v = ends - starts
    length = np.maximum((v * v).sum(-1), np.float32(1e-6))
    pixels = np.arange(_SIDE, dtype=np.float32)
    q = pixels - starts[..., None]
    along = q * (v / length[..., None])[..., None]
    q *= q
    nearest = np.full((len(segments), _SIDE, _SIDE), np.inf, np.float32)
    room = [np.empty_like(nearest) for _ in range(3)]
    for k in range(segments[0]):
        n = np.count_nonzero(segments > k)
        t, s, d = (buffer[:n] for buffer in room)
        np.add(along[:n, k, 1, :, None], along[:n, k, 0, None, :], out=s)
        np.clip(s, 0, 1, out=t)
        s *= 2
        np.subtract(t, s, out=s)
        t *= length[:n, k, None, None]
        t *= s
        np.add(q[:n, k, 1, :, None], q[:n, k, 0, None, :], out=d)
        d += t
        np.minimum(nearest[:n], d, out=nearest[:n])
    found = np.empty_like(nearest)
    found[most_first] = np.maximum(nearest, 0, out=nearest)
    return found
