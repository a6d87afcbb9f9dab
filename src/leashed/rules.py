"""Update rules: how a gradient changes the parameters, and the state that a rule keeps for each.

Every rule is one fused native pass over parameters, gradient and state. Under ``Leashed`` the state
is published together with the parameters, in one vector; under ``Hogwild`` it is updated in place,
without any synchronisation, as they are; elsewhere in place, under the lock. Results agree with
``torch.optim`` step by step, to float32 rounding.

The gradient that a rule sees is ĝ = ρ c clamp(g, ±clip_value) + weight_decay θ: c from
``clip_norm``, ρ from the staleness policy (``leashed.staleness``).

A square, or a sum of squares, that is too large for a float32 (of a gradient beyond 1.8e19) is
infinite and stays so, as in PyTorch: a parameter is not moved any more by what is divided by it.

A new rule is a class here and a line in ``__all__``, from which ``RULES`` and with it
``leashed train`` and ``leashed bench combinations`` know it; its native part is described in
``cpp/leashed/update/rules.h``, and docs/extending.md has an example.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from leashed import schedules
from leashed.base import checks, words
from leashed.base.choice import Choice, Setting
from leashed.base.value import Value
from leashed.schedules import Schedule

__all__: list[str] = [  # noqa: RUF022  in the order of this file
    "Rule",
    "SGD",
    "Momentum",
    "Nesterov",
    "Adagrad",
    "RMSprop",
    "Adam",
    "AdamW",
    "FTRL",
    "SWAP",
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
    def state_names(self) -> tuple[str, ...]:
        """What ``torch.optim`` calls the vectors of state, in the native rule's order."""

    @property
    def state_vectors(self) -> int:
        """Floats of state for each parameter."""
        return len(self.state_names)


@dataclass(frozen=True, eq=False, repr=False)
class Stepping(Value, Rule):
    """Base of the rules that are no wrappers. What all of them take is told once, at ``SGD``."""

    NATIVE: ClassVar[str]
    STATES: ClassVar[tuple[str, ...]]  # state_names
    SQUARES: ClassVar[bool] = False  # accumulated, so SWAP has something to decay
    LR: ClassVar[float]  # where none is given
    SHARED_LR: ClassVar[float]  # the same for threads whose gradients are stale

    lr: float | Schedule
    weight_decay: float = field(default=0.0, kw_only=True)
    clip_value: float | None = field(default=None, kw_only=True)
    clip_norm: float | None = field(default=None, kw_only=True)
    maximize: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.lr, Schedule):
            self._set("lr", checks.rate("lr", self.lr))
        for item in dataclasses.fields(self):
            if item.default is False and not isinstance(getattr(self, item.name), bool):
                raise TypeError(
                    f"{item.name} must be True or False, got {getattr(self, item.name)!r}"
                )
        self._set("weight_decay", checks.real("weight_decay", self.weight_decay, 0.0, allow=True))
        for name in ("clip_value", "clip_norm"):
            value = getattr(self, name)
            if value is not None:
                self._set(name, checks.step(name, value))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _share(self, name: str) -> None:
        """Checks a decay rate: from 0 to below 1."""
        value = checks.real(name, getattr(self, name), 0.0, allow=True)
        if value >= 1.0:
            raise ValueError(f"{name} must be less than 1, got {value:g}")
        self._set(name, value)

    @property
    def native(self) -> str:
        """The native rule's name."""
        return self.NATIVE

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.STATES

    @property
    def accumulates(self) -> bool:
        """Whether there are squares that SWAP may decay."""
        return self.SQUARES

    def choice(self) -> Choice:
        settings: dict[str, Setting] = {
            item.name: float(value)
            for item in dataclasses.fields(self)
            if item.name != "lr" and (value := getattr(self, item.name)) is not None
        }
        return self.native, {"lr": schedules.setting(self.lr), **settings}

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": type(self).__name__, "lr": schedules.of(self.lr).base}
        if isinstance(self.lr, Schedule):
            found["schedule"] = self.lr.config()
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "lr" and value != item.default:
                found[item.name] = value
        return found


@dataclass(frozen=True, eq=False, repr=False)
class SGD(Stepping):
    """Stochastic gradient descent, θ ← θ − η g (leashed-sgd, eq. 1).

    Args:
        lr: the step size η, from 0, or a schedule from ``leashed.schedules``.
        weight_decay: λ; λθ is added to the gradient, after clipping. Every rule takes it.
        decoupled: shrink θ by 1 − ηλ instead, apart from the gradient and its staleness.
        clip_value: every component of the gradient is clipped to ± this. Every rule takes it.
        clip_norm: where the Euclidean norm of the whole gradient (after ``clip_value``) is greater,
            it is scaled down to this, as ``torch.nn.utils.clip_grad_norm_`` does. Found in a pass
            of its own before the update, under no lock and in no retry. Every rule takes it.
        maximize: climb: the gradient's sign is turned, before weight decay. Every rule takes it.

    Raises:
        TypeError: an argument is not a number, or not True or False.
        ValueError: ``lr`` is NaN, infinite, negative, or so large that it is infinite as a
            float32; or another argument is out of its range.
    """

    NATIVE = "sgd"
    STATES = ()
    LR = SHARED_LR = 0.05

    decoupled: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class Momentum(Stepping):
    """SGD with momentum: b ← μ b + (1 − δ) g, θ ← θ − η b.
    ``torch.optim.SGD(momentum=μ, dampening=δ)``, which does not dampen the first update either.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        momentum: μ, from 0 to below 1.
        dampening: δ, from 0 to below 1.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "momentum"
    STATES = ("momentum_buffer",)
    LR = 0.01
    SHARED_LR = 0.005

    momentum: float = 0.9
    dampening: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("momentum")
        self._share("dampening")


@dataclass(frozen=True, eq=False, repr=False)
class Nesterov(Momentum):
    """SGD with Nesterov's momentum: b ← μ b + g, θ ← θ − η (g + μ b).
    ``torch.optim.SGD(momentum=μ, nesterov=True)``.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        momentum: μ, from 0 to below 1.
        dampening: 0, as in PyTorch.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "nesterov"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dampening:
            raise ValueError(
                f"dampening must be 0 with Nesterov's momentum, got {self.dampening:g}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Adagrad(Stepping):
    """Adagrad (Duchi et al., 2011): v ← v + g², θ ← θ − η g / (√v + ε).

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        eps: ε, greater than 0.
        initial_accumulator: v before the first update, from 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "adagrad"
    STATES = ("sum",)
    SQUARES = True
    LR = 0.01
    SHARED_LR = 0.005

    eps: float = 1e-10
    initial_accumulator: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("eps", checks.step("eps", self.eps))
        self._set(
            "initial_accumulator",
            checks.real("initial_accumulator", self.initial_accumulator, 0.0, allow=True),
        )


@dataclass(frozen=True, eq=False, repr=False)
class RMSprop(Stepping):
    """RMSprop: v ← α v + (1 − α) g², θ ← θ − η g / (√v + ε).

    Centered, the mean ḡ ← α ḡ + (1 − α) g is kept too, and the root is that of the variance v − ḡ².

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        alpha: α, from 0 to below 1.
        eps: ε, greater than 0.
        centered: divide by the root of the variance. A variance that rounding makes negative,
            whose root is NaN in PyTorch, is 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "rmsprop"
    STATES = ("square_avg",)
    SQUARES = True
    LR = 0.001
    SHARED_LR = 0.0005

    alpha: float = 0.99
    eps: float = 1e-8
    centered: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("alpha")
        self._set("eps", checks.step("eps", self.eps))

    @property
    def native(self) -> str:
        return "centered_rmsprop" if self.centered else super().native

    @property
    def state_names(self) -> tuple[str, ...]:
        return (*super().state_names, "grad_avg") if self.centered else super().state_names

    @property
    def accumulates(self) -> bool:
        return not self.centered  # the variance would be less than 0


@dataclass(frozen=True, eq=False, repr=False)
class Adam(Stepping):
    """Adam (Kingma and Ba, 2014): m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g²,
    θ ← θ − η m̂ / (√v̂ + ε) with m̂ = m / (1 − β₁ⁿ), v̂ = v / (1 − β₂ⁿ) at update n = t + 1.

    With ``amsgrad`` (Reddi, Kale and Kumar, 2018) the largest v so far takes the place of v in v̂.

    Args:
        lr: as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        beta1: β₁, from 0 to below 1.
        beta2: β₂, from 0 to below 1.
        eps: ε, greater than 0.
        amsgrad: divide by the root of the largest v.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "adam"
    STATES = ("exp_avg", "exp_avg_sq")
    SQUARES = True
    LR = SHARED_LR = 0.001

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    amsgrad: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._share("beta1")
        self._share("beta2")
        self._set("eps", checks.step("eps", self.eps))

    @property
    def native(self) -> str:
        return "amsgrad" if self.amsgrad else super().native

    @property
    def state_names(self) -> tuple[str, ...]:
        names = super().state_names
        return (*names, "max_exp_avg_sq") if self.amsgrad else names


@dataclass(frozen=True, eq=False, repr=False)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019): θ shrinks by 1 − ηλ before
    each update, apart from the gradient.

    Args:
        lr: as for ``SGD``, with its ``clip_value``, ``clip_norm`` and ``maximize``.
        beta1: β₁, from 0 to below 1.
        beta2: β₂, from 0 to below 1.
        eps: ε, greater than 0.
        amsgrad: as for ``Adam``.
        weight_decay: λ, from 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    weight_decay: float = field(default=0.01, kw_only=True)

    def choice(self) -> Choice:
        name, settings = super().choice()
        return name, {**settings, "decoupled": 1.0}


@dataclass(frozen=True, eq=False, repr=False)
class FTRL(Stepping):
    """FTRL-Proximal (McMahan et al., "Ad click prediction: a view from the trenches", 2013,
    Algorithm 1): z ← z + g − σθ with σ = (√(n + g²) − √n) / α, n ← n + g², and
    θ = 0 where |z| ≤ λ₁, else −(z − sign(z) λ₁) / ((β + √n) / α + λ₂). With λ₁ = λ₂ = 0 that is
    Adagrad with ε = β.

    Kept in place of z is z + ((β + √n) / α + λ₂) θ, from 0: training begins at the θ that is given,
    where Algorithm 1 begins at 0 and is the same from there.

    Args:
        lr: α, as for ``SGD``, with its ``weight_decay``, ``clip_value``, ``clip_norm`` and
            ``maximize``.
        l1: λ₁, from 0: parameters that matter less are exactly 0.
        l2: λ₂, from 0.
        beta: β, greater than 0.

    Raises:
        TypeError, ValueError: an argument is no such number; the message names it.
    """

    NATIVE = "ftrl"
    STATES = ("residual", "sum")
    LR = 0.1
    SHARED_LR = 0.05

    l1: float = 0.0
    l2: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("l1", "l2"):
            self._set(name, checks.real(name, getattr(self, name), 0.0, allow=True))
        self._set("beta", checks.step("beta", self.beta))


@dataclass(frozen=True, eq=False, repr=False)
class SWAP(Value, Rule):
    """Samples weighted according to period (extreme-scale-asgd, Algorithm 2), over a rule that
    accumulates squared gradients: the accumulator v is multiplied by λ₀ at every ``period``-th
    update, and by nothing in between. Samples of one period count equally, and those of k periods
    ago λ₀ᵏ times as much: the accumulator of a run that lasts for weeks stays bounded, and steps
    do not vanish. t counts updates of the whole vector; at t = 0 nothing is decayed
    (docs/readings.md#staleness-and-data-normalisation-swap).
    Every entry of v decays, also of a parameter that gets no gradient then (``grad`` is None in
    PyTorch, or a stage-aware policy leaves its variable out).

    What is decayed:

    - ``Adagrad``: v, its only state: v ← λ v + g² (Algorithm 2, line 8). ε stays outside of the
      root, as in ``Adagrad`` and PyTorch; line 9 has it inside: ``as_printed``.
    - ``RMSprop``: v, before the decay by α that it has at every step.
    - ``Adam``: v, the second moment, before the decay by β₂ that it has at every step. Not m: it is
      a mean of the last 1 / (1 − β₁) gradients that gives the direction, it holds nothing of
      earlier periods, and decaying it would only make the next steps shorter. Nor the bias
      corrections, which count updates: so right after a decay v̂ is λ₀ times what it was, and
      steps are up to 1 / √λ₀ longer until new gradients have filled it up, which is what SWAP is
      for. With ``amsgrad`` the largest v is decayed as well.

    Args:
        rule: an ``Adagrad``, ``RMSprop`` (not centered), ``Adam`` or ``AdamW``.
        period: T, updates; from 1. The paper's: 1.4e7.
        decay: λ₀, above 0 and at most 1. The paper's: 0.8.
        as_printed: over ``Adagrad``, line 9 to the letter: θ ← θ − η g / √(v + ε).

    Raises:
        TypeError: ``rule`` keeps no accumulator of squared gradients, or is not the ``Adagrad``
            that ``as_printed`` needs; ``as_printed`` is no bool.
        ValueError: ``period`` or ``decay`` is out of range.
    """

    rule: Rule
    period: int
    decay: float = 0.8
    as_printed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not (isinstance(self.rule, Stepping) and self.rule.accumulates):
            centered = "centered " if getattr(self.rule, "centered", False) else ""
            name = getattr(type(self.rule), "__name__", self.rule)
            *others, last = [kind.__name__ for kind in RULES.values() if kind.SQUARES]
            raise TypeError(
                "SWAP decays accumulated squared gradients, which "
                f"{centered}{name} does not keep{' alone' if centered else ''}; "
                f"wrap {', '.join(others)} or {last}"
            )
        object.__setattr__(self, "period", checks.whole("period", self.period, 1, 2**53))
        object.__setattr__(self, "decay", checks.real("decay", self.decay, 0.0))
        if self.decay > 1.0:
            raise ValueError(f"decay must be at most 1, got {self.decay:g}")
        if not isinstance(self.as_printed, bool):
            raise TypeError(f"as_printed must be True or False, got {self.as_printed!r}")
        if self.as_printed and not isinstance(self.rule, Adagrad):
            raise TypeError(
                "as_printed is Algorithm 2, which is of Adagrad; "
                f"wrap Adagrad, or {type(self.rule).__name__} without as_printed"
            )

    @property
    def state_names(self) -> tuple[str, ...]:
        return self.rule.state_names

    def choice(self) -> Choice:
        name, settings = self.rule.choice()
        swap: Choice = ("swap", {"period": float(self.period), "decay": self.decay})
        return "adagrad_printed" if self.as_printed else name, {**settings, "swap": swap}

    def config(self) -> dict[str, Any]:
        printed = {"as_printed": True} if self.as_printed else {}
        swap = {"period": self.period, "decay": self.decay, **printed}
        return {**self.rule.config(), "swap": swap}


# Every rule but SWAP, by the command line's name.
RULES: Mapping[str, type[Stepping]] = {
    name.lower(): kind
    for name in __all__
    if issubclass(kind := globals()[name], Stepping) and kind is not Stepping
}


def check_rule(rule: Rule | str) -> Rule:
    """``rule``, or what its word stands for: ``"adam"``, ``"adagrad:lr=0.03"``.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such word; the message says which there are.
    """
    if isinstance(rule, str):
        kind = words.choose(RULES, "rule", rule.partition(":")[0].strip())
        lr = words.settings("rule", rule.partition(":")[2]).get("lr", kind.LR)
        return words.made(RULES, "rule", rule)(lr=lr)
    if not isinstance(rule, Rule):
        raise TypeError(f"rule must be SGD(lr=...) or another rule of leashed.rules, got {rule!r}")
    return rule
