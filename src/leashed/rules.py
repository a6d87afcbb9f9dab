"""Update rules: how a gradient changes the parameters, and the state that a rule keeps for each.

Every rule is one fused native pass over parameters, gradient and state. Under ``Leashed`` the state
is published together with the parameters, in one vector; under ``Hogwild`` it is updated in place,
without any synchronisation, as they are; elsewhere in place, under the lock. Results agree with
``torch.optim`` step by step, to float32 rounding.

The gradient that a rule sees is ĝ = ρ c clamp(g, ±clip_value) + weight_decay θ: c from
``clip_norm``, ρ from the staleness policy (``leashed.staleness``).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from leashed import _check, schedules
from leashed.choice import Choice, Setting
from leashed.schedules import Schedule

__all__ = [
    "SGD",
    "SWAP",
    "Adagrad",
    "Adam",
    "AdamW",
    "Momentum",
    "Nesterov",
    "RMSprop",
    "Rule",
]


class Rule(ABC):
    """Base of the rules below; not one itself."""

    @abstractmethod
    def choice(self) -> Choice:
        """The native rule's name and numbers."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Its name and settings, as JSON's own types; ``lr`` is the initial learning rate."""

    @property
    @abstractmethod
    def state_vectors(self) -> int:
        """Floats of state for each parameter."""


@dataclass(frozen=True)
class _Stepping(Rule):
    """What all rules take; their docstrings name it once, at ``SGD``."""

    NATIVE: ClassVar[str]
    STATES: ClassVar[int]
    ACCUMULATES: ClassVar[bool] = False  # squared gradients: SWAP has something to decay

    lr: float | Schedule
    weight_decay: float = field(default=0.0, kw_only=True)
    clip_value: float | None = field(default=None, kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.lr, Schedule):
            self._set("lr", _check.step("lr", self.lr))
        self._set("weight_decay", _check.real("weight_decay", self.weight_decay, 0.0, allow=True))
        for name in ("clip_value", "clip_norm"):
            value = getattr(self, name)
            if value is not None:
                self._set(name, _check.step(name, value))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _share(self, name: str) -> None:
        """Checks a decay rate: from 0 to below 1."""
        value = _check.real(name, getattr(self, name), 0.0, allow=True)
        if value >= 1.0:
            raise ValueError(f"{name} must be less than 1, got {value:g}")
        self._set(name, value)

    @property
    def state_vectors(self) -> int:
        return self.STATES

    def choice(self) -> Choice:
        settings: dict[str, Setting] = {
            item.name: float(value)
            for item in dataclasses.fields(self)
            if item.name != "lr" and (value := getattr(self, item.name)) is not None
        }
        return self.NATIVE, {"lr": schedules.setting(self.lr), **settings}

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": type(self).__name__, "lr": schedules.of(self.lr).base}
        if isinstance(self.lr, Schedule):
            found["schedule"] = self.lr.config()
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "lr" and value != item.default:
                found[item.name] = value
        return found


@dataclass(frozen=True)
class SGD(_Stepping):
    """Stochastic gradient descent, θ ← θ − η g (leashed-sgd, eq. 1).

    Args:
        lr: the step size η, greater than 0, or a schedule from ``leashed.schedules``.
        weight_decay: λ; λθ is added to the gradient, after clipping. Every rule takes it.
        decoupled: shrink θ by 1 − ηλ instead, apart from the gradient and its staleness.
        clip_value: every component of the gradient is clipped to ± this. Every rule takes it.
        clip_norm: where the Euclidean norm of the whole gradient (after ``clip_value``) is greater,
            it is scaled down to this, as ``torch.nn.utils.clip_grad_norm_`` does. Found in a pass
            of its own before the update, under no lock and in no retry. Every rule takes it.

    Raises:
        TypeError: an argument is not a number.
        ValueError: ``lr`` is NaN, infinite, zero or negative, or so small or large that
            it is zero or infinite as a float32; or another argument is out of its range.
    """

    NATIVE = "sgd"
    STATES = 0

    decoupled: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.decoupled, bool):
            raise TypeError(f"decoupled must be True or False, got {self.decoupled!r}")


@dataclass(frozen=True)
class Momentum(_Stepping):
    """SGD with momentum: b ← μ b + g, θ ← θ − η b. ``torch.optim.SGD(momentum=μ)``.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value`` and ``clip_norm``.
        momentum: μ, from 0 to below 1.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "momentum"
    STATES = 1

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("momentum")


@dataclass(frozen=True)
class Nesterov(Momentum):
    """SGD with Nesterov's momentum: b ← μ b + g, θ ← θ − η (g + μ b).
    ``torch.optim.SGD(momentum=μ, nesterov=True)``.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value`` and ``clip_norm``.
        momentum: μ, from 0 to below 1.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "nesterov"


@dataclass(frozen=True)
class Adagrad(_Stepping):
    """Adagrad (Duchi et al., 2011): v ← v + g², θ ← θ − η g / (√v + ε).

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value`` and ``clip_norm``.
        eps: ε, greater than 0.
        initial_accumulator: v before the first update, from 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "adagrad"
    STATES = 1
    ACCUMULATES = True

    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("eps", _check.step("eps", self.eps))
        self._set(
            "initial_accumulator",
            _check.real("initial_accumulator", self.initial_accumulator, 0.0, allow=True),
        )


@dataclass(frozen=True)
class RMSprop(_Stepping):
    """RMSprop: v ← α v + (1 − α) g², θ ← θ − η g / (√v + ε).

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value`` and ``clip_norm``.
        alpha: α, from 0 to below 1.
        eps: ε, greater than 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "rmsprop"
    STATES = 1
    ACCUMULATES = True

    alpha: float = 0.99
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("alpha")
        self._set("eps", _check.step("eps", self.eps))


@dataclass(frozen=True)
class Adam(_Stepping):
    """Adam (Kingma and Ba, 2014): m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g²,
    θ ← θ − η m̂ / (√v̂ + ε) with m̂ = m / (1 − β₁ⁿ), v̂ = v / (1 − β₂ⁿ) at update n = t + 1.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value`` and ``clip_norm``.
        beta1: β₁, from 0 to below 1.
        beta2: β₂, from 0 to below 1.
        eps: ε, greater than 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "adam"
    STATES = 2
    ACCUMULATES = True

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("beta1")
        self._share("beta2")
        self._set("eps", _check.step("eps", self.eps))


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): θ shrinks by 1 − ηλ before
    each update, apart from the gradient.

    Args:
        lr: as for ``SGD``, with its ``clip_value`` and ``clip_norm``.
        beta1: β₁, from 0 to below 1.
        beta2: β₂, from 0 to below 1.
        eps: ε, greater than 0.
        weight_decay: λ, from 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    weight_decay: float = field(default=0.01, kw_only=True)

    def choice(self) -> Choice:
        name, settings = super().choice()
        return name, {**settings, "decoupled": 1.0}


@dataclass(frozen=True)
class SWAP(Rule):
    """Samples weighted according to period (extreme-scale-asgd, Algorithm 2), over a rule that
    accumulates squared gradients: the accumulator v is multiplied by λ₀ at every ``period``-th
    update, and by nothing in between. Samples of one period count equally, and those of k periods
    ago λ₀ᵏ times as much: the accumulator of a run that lasts for weeks stays bounded, and steps
    do not vanish. t counts updates of the whole vector; at t = 0 nothing is decayed (READINGS).

    What is decayed:

    - ``Adagrad``: v, its only state: v ← λ v + g² (Algorithm 2, line 8). ε stays outside of the
      root, as in ``Adagrad`` and PyTorch; line 9 has it inside.
    - ``RMSprop``: v, before the decay by α that it has at every step.
    - ``Adam``: v, the second moment, before the decay by β₂ that it has at every step. Not m: it is
      a mean of the last 1 / (1 − β₁) gradients that gives the direction, it holds nothing of
      earlier periods, and decaying it would only make the next steps shorter. Nor the bias
      corrections, which count updates: so right after a decay v̂ is λ₀ times what it was, and
      steps are up to 1 / √λ₀ longer until new gradients have filled it up, which is what SWAP is
      for.

    Args:
        rule: an ``Adagrad``, ``RMSprop``, ``Adam`` or ``AdamW``.
        period: T, updates; from 1. The paper's: 1.4e7.
        decay: λ₀, above 0 and at most 1. The paper's: 0.8.

    Raises:
        TypeError: ``rule`` keeps no accumulator of squared gradients.
        ValueError: ``period`` or ``decay`` is out of range.
    """

    rule: Rule
    period: int
    decay: float = 0.8

    def __post_init__(self) -> None:
        if not (isinstance(self.rule, _Stepping) and self.rule.ACCUMULATES):
            raise TypeError(
                "SWAP decays accumulated squared gradients, which "
                f"{getattr(type(self.rule), '__name__', self.rule)} does not keep; "
                "wrap Adagrad, RMSprop, Adam or AdamW"
            )
        object.__setattr__(self, "period", _check.whole("period", self.period, 1, 2**53))
        object.__setattr__(self, "decay", _check.real("decay", self.decay, 0.0))
        if self.decay > 1.0:
            raise ValueError(f"decay must be at most 1, got {self.decay:g}")

    @property
    def state_vectors(self) -> int:
        return self.rule.state_vectors

    def choice(self) -> Choice:
        name, settings = self.rule.choice()
        swap: Choice = ("swap", {"period": float(self.period), "decay": self.decay})
        return name, {**settings, "swap": swap}

    def config(self) -> dict[str, Any]:
        return {**self.rule.config(), "swap": {"period": self.period, "decay": self.decay}}
