"""The engine under a training loop of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from leashed import _check, _core, rules
from leashed import staleness as policies
from leashed.disciplines import Discipline, Leashed, Sequential, Synchronous
from leashed.machine import cores
from leashed.rules import SGD, Rule
from leashed.staleness import Policy

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Engine"]

MOST = 4096


class Engine(_core.Engine):
    """Parameters that threads of your own read and update, with gradients from anywhere.

        with lsh.Engine(theta, rule=lsh.Adam(1e-3), discipline=lsh.Hogwild()) as engine:
            # in each of your threads, again and again:
            with engine.read() as theta:
                g = gradient(theta)
            engine.push(g)

    ``read()`` gives a read-only float32 [d] array and costs no copy under ``Leashed`` (a pinned
    published vector, which never changes), under ``Hogwild(copy=False)`` and ``Sequential`` (the
    vector itself, which goes on changing). Under ``Hogwild()`` and ``Locked`` it is a copy, as
    their algorithms say. An array may be kept: what it shows stays for as long as anyone refers to
    it, and counts as one of the ``readers`` meanwhile.

    ``push(gradient)`` applies a gradient: a contiguous float32 [d] array, which is not converted.
    One with NaN or infinity is refused before anything is changed. Its staleness τ is counted from
    the calling thread's last read, or from ``t=``, the version of the view it was computed on. It
    returns ``Update(published, staleness, tries)``; ``published`` is False where the persistence
    bound dropped the gradient or the staleness policy left it out.

    ``push_sparse(indices, values)`` under ``Hogwild`` touches only the parameters it names
    (int64 [n], ascending, and float32 [n]); the rule must be ``SGD`` or ``Adagrad`` without weight
    decay, which leave a parameter with no gradient as it is.

    A thread becomes one of the ``workers`` by its first push, until it ends. Leaving the ``with``
    closes the engine: reads and pushes raise from then on, arrays and ``parameters()`` remain.

    Args:
        theta: initial parameters [d], converted to float32 and copied.
        rule: the update rule, from ``leashed.rules``. Default: ``SGD(lr=0.05)``.
        discipline: how threads share the parameters. Default: ``Leashed()``. Not ``Synchronous``:
            it takes all its threads through every step together.
        staleness: from ``leashed.staleness``. Default: ``none()``.
        workers: threads that may push. Default: the processors this process may use (1 with
            ``Sequential``).
        readers: views that may be alive at once. Default: two for each worker (the one in hand
            and the one that a variable still names) and eight more.
        variables: the lengths of the variables that ``theta`` is made of, for stage-aware
            staleness. Default: it is one.
        check_finite: search each gradient for NaN and infinity before it is applied: one more pass
            over it, without the GIL where it is long. False trusts the caller; one NaN then spreads
            to whatever is computed from the parameters.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        ValueError (``push``, ``push_sparse``): a value is NaN or infinite; the message tells the
            first one's index. Parameters, state and t are unchanged.
        RuntimeError (``read``, ``push``): the engine is closed, or more views or threads than
            there may be; (``push``) this thread has read nothing and ``t`` is not given.
    """

    def __init__(
        self,
        theta: ArrayLike,
        *,
        rule: Rule | None = None,
        discipline: Discipline | None = None,
        staleness: Policy | None = None,
        workers: int | None = None,
        readers: int | None = None,
        variables: Sequence[int] | None = None,
        check_finite: bool = True,
    ) -> None:
        start = _check.vector("theta", theta)
        self.discipline = check_discipline(discipline)
        self.rule = check_rule(rule)
        self.staleness = policies.of("staleness", staleness or policies.none())
        if workers is None:
            workers = 1 if isinstance(self.discipline, Sequential) else cores()
        workers = _check.whole("workers", workers, maximum=MOST)
        if isinstance(self.discipline, Sequential) and workers != 1:
            raise ValueError(
                f"workers must be 1 with Sequential, got {workers}; choose another discipline"
            )
        if not isinstance(check_finite, bool):
            raise TypeError(f"check_finite must be True or False, got {check_finite!r}")
        readers = 2 * workers + 8 if readers is None else readers
        super().__init__(
            start,
            self.discipline.choice(),
            self.rule.choice(),
            self.staleness.choice(),
            workers,
            _check.whole("readers", readers, maximum=4 * MOST),
            _ends(variables, len(start)),
            check_finite,
            [],
            0,
        )

    def parameters(self) -> NDArray[np.float32]:
        """A copy of the latest parameters, float32 [d]."""
        theta: NDArray[np.float32] = self._state()[0]
        return theta

    @property
    def state(self) -> list[NDArray[np.float32]]:
        """Copies of the rule's state vectors, each float32 [d]; Adam's are the first and the second
        moment.
        """
        states: list[NDArray[np.float32]] = self._state()[1]
        return states

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.dimension

    def __repr__(self) -> str:
        return (
            f"Engine(d={self.dimension}, t={self.t}, rule={self.rule!r}, "
            f"discipline={self.discipline!r}, workers={self.workers})"
        )

    def __reduce__(self) -> Any:
        raise TypeError("an Engine lives in one process and cannot be pickled")


def check_discipline(discipline: Discipline | None) -> Discipline:
    """``discipline``, or the default; an error where threads cannot come and go under it."""
    discipline = Leashed() if discipline is None else discipline
    if not isinstance(discipline, Discipline):
        raise TypeError(
            f"discipline must be Leashed(), Hogwild(), Locked() or Sequential(), got {discipline!r}"
        )
    if isinstance(discipline, Synchronous):
        raise ValueError(  # noqa: TRY004  it is a discipline, but not one for this
            "discipline must not be Synchronous, which takes all its threads through every step "
            "together; choose Leashed(), Hogwild(), Locked() or Sequential()"
        )
    return discipline


def check_rule(rule: Rule | None) -> Rule:
    """``rule``, or the default; TypeError where it is none."""
    return SGD(0.05) if rule is None else rules.check_rule(rule)


def _ends(variables: Sequence[int] | None, dimension: int) -> list[int]:
    if variables is None:
        return []
    lengths = [_check.whole(f"variables[{i}]", n) for i, n in enumerate(variables)]
    if sum(lengths) != dimension:
        raise ValueError(f"variables must add up to the {dimension} parameters, got {sum(lengths)}")
    return list(accumulate(lengths))
