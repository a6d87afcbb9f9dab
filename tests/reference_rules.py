"""Update rules, clipping and schedules in NumPy and double precision, from their papers.

Independent of the engine: it knows nothing of it but the rules' Python arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import leashed as lsh

Array = NDArray[np.float64]


def clipped(g: Array, value: float | None, norm: float | None) -> Array:
    """By value, then by the global norm."""
    if value is not None:
        g = np.clip(g, -value, value)
    if norm is not None:
        g = g * min(1.0, norm / (math.sqrt(float((g**2).sum())) + 1e-6))
    return g


# Where a Reference has what the rules keep.
STATES = {
    "momentum_buffer": "m",
    "exp_avg": "m",
    "grad_avg": "m",
    "sum": "v",
    "square_avg": "v",
    "exp_avg_sq": "v",
    "max_exp_avg_sq": "v_max",
    "residual": "residual",
}


class Reference:
    """One vector under one rule; ``step`` applies a gradient."""

    def __init__(self, rule: lsh.Rule, theta: NDArray[np.floating]) -> None:
        self.period, self.decay, self.as_printed = 0, 1.0, False
        if isinstance(rule, lsh.SWAP):
            self.period, self.decay, self.as_printed = rule.period, rule.decay, rule.as_printed
            rule = rule.rule
        self.rule = rule
        self.theta = np.asarray(theta, np.float64)
        self.m = np.zeros_like(self.theta)
        self.v = np.zeros_like(self.theta)
        self.v_max = np.zeros_like(self.theta)
        if isinstance(rule, lsh.Adagrad):
            self.v += rule.initial_accumulator
        if isinstance(rule, lsh.FTRL):  # such that its formula gives theta back
            self.m = -self._curvature(rule, float(rule.lr)) * self.theta
        self.t = 0

    def state(self, name: str) -> Array:
        """The vector that ``Rule.state_names`` calls so."""
        return getattr(self, STATES[name])

    def _curvature(self, rule: lsh.FTRL, lr: float) -> Array:
        return (rule.beta + np.sqrt(self.v)) / lr + rule.l2

    @property
    def residual(self) -> Array:
        """What FTRL's z leaves of λ₁."""
        assert isinstance(self.rule, lsh.FTRL)
        return np.clip(self.m, -self.rule.l1, self.rule.l1) if self.t else np.zeros_like(self.m)

    @property
    def kept(self) -> float:
        """SWAP's λ at t: once every period, not at the first update."""
        return self.decay if self.period and self.t and self.t % self.period == 0 else 1.0

    def step(
        self, gradient: NDArray[np.floating], factor: float = 1.0, lr: float = math.nan
    ) -> None:
        rule = self.rule
        lr = float(rule.lr) if math.isnan(lr) else lr
        g = factor * clipped(np.asarray(gradient, np.float64), rule.clip_value, rule.clip_norm)
        if rule.maximize:
            g = -g
        if isinstance(rule, lsh.AdamW) or getattr(rule, "decoupled", False):
            self.theta = (1.0 - lr * rule.weight_decay) * self.theta
        else:
            g = g + rule.weight_decay * self.theta
        self.theta = self.theta - self._change(rule, g, lr)
        self.t += 1

    def _change(self, rule: lsh.Rule, g: Array, lr: float) -> Array:
        match rule:
            case lsh.SGD():
                return lr * g
            case lsh.Nesterov(momentum=mu):
                self.m = mu * self.m + g
                return lr * (g + mu * self.m)
            case lsh.Momentum(momentum=mu, dampening=delta):
                self.m = mu * self.m + (1.0 - delta) * g if self.t else g
                return lr * self.m
            case lsh.Adagrad(eps=eps):
                self.v = self.kept * self.v + g**2
                if self.as_printed:
                    return lr * g / np.sqrt(self.v + eps)
                return lr * g / (np.sqrt(self.v) + eps)
            case lsh.RMSprop(alpha=alpha, eps=eps):
                self.v = alpha * self.kept * self.v + (1.0 - alpha) * g**2
                self.m = alpha * self.m + (1.0 - alpha) * g
                variance = self.v - self.m**2 if rule.centered else self.v
                return lr * g / (np.sqrt(variance) + eps)
            case lsh.Adam(beta1=beta1, beta2=beta2, eps=eps):
                self.m = beta1 * self.m + (1.0 - beta1) * g
                self.v = beta2 * self.kept * self.v + (1.0 - beta2) * g**2
                self.v_max = np.maximum(self.kept * self.v_max, self.v)
                m_hat = self.m / (1.0 - beta1 ** (self.t + 1))
                v_hat = (self.v_max if rule.amsgrad else self.v) / (1.0 - beta2 ** (self.t + 1))
                return lr * m_hat / (np.sqrt(v_hat) + eps)
            case lsh.FTRL(l1=l1):
                sigma = (np.sqrt(self.v + g**2) - np.sqrt(self.v)) / lr
                self.m = self.m + g - sigma * self.theta
                self.v = self.v + g**2
                z = np.sign(self.m) * np.maximum(np.abs(self.m) - l1, 0.0)
                return self.theta + z / self._curvature(rule, lr)
        raise AssertionError(rule)


RULES: dict[str, Callable[[], lsh.Rule]] = {
    "SGD": lambda: lsh.SGD(0.05),
    "SGD, coupled decay": lambda: lsh.SGD(0.05, weight_decay=0.1),
    "SGD, decoupled decay": lambda: lsh.SGD(0.05, weight_decay=0.1, decoupled=True),
    "SGD, clipped by value": lambda: lsh.SGD(0.05, clip_value=0.5),
    "SGD, clipped by norm": lambda: lsh.SGD(0.05, clip_norm=3.0),
    "SGD, clipped by both": lambda: lsh.SGD(0.05, clip_value=0.8, clip_norm=2.0),
    "Momentum": lambda: lsh.Momentum(0.02, 0.9),
    "Momentum, decay, clipped": lambda: lsh.Momentum(
        0.02, 0.8, weight_decay=0.05, clip_value=1.0, clip_norm=5.0
    ),
    "Momentum, dampened": lambda: lsh.Momentum(0.02, 0.9, dampening=0.4, weight_decay=0.05),
    "Nesterov": lambda: lsh.Nesterov(0.02, 0.9),
    "Nesterov, decay": lambda: lsh.Nesterov(0.02, 0.9, weight_decay=0.05),
    "Adagrad": lambda: lsh.Adagrad(0.05),
    "Adagrad, decay": lambda: lsh.Adagrad(0.05, initial_accumulator=0.1, weight_decay=0.05),
    "RMSprop": lambda: lsh.RMSprop(0.01),
    "RMSprop, decay": lambda: lsh.RMSprop(0.01, 0.9, 1e-6, weight_decay=0.05),
    "RMSprop, centered": lambda: lsh.RMSprop(0.01, centered=True),
    "RMSprop, centered, decay": lambda: lsh.RMSprop(
        0.01, 0.9, 1e-6, centered=True, weight_decay=0.05, clip_value=2.0
    ),
    "Adam": lambda: lsh.Adam(0.01),
    "Adam, decay": lambda: lsh.Adam(0.01, 0.8, 0.99, 1e-6, weight_decay=0.05, clip_norm=4.0),
    "Adam, AMSGrad": lambda: lsh.Adam(0.01, 0.9, 0.9, amsgrad=True),
    "AdamW": lambda: lsh.AdamW(0.01, weight_decay=0.1),
    "AdamW, AMSGrad": lambda: lsh.AdamW(0.01, 0.9, 0.9, amsgrad=True, weight_decay=0.1),
    "FTRL": lambda: lsh.FTRL(0.1),
    "FTRL, both penalties": lambda: lsh.FTRL(0.2, 0.7, 0.3, 0.5),
    "FTRL, decay, clipped": lambda: lsh.FTRL(0.1, 0.2, weight_decay=0.05, clip_value=0.8),
    "SGD, climbing": lambda: lsh.SGD(0.001, maximize=True, weight_decay=0.1, clip_norm=2.0),
    "Momentum, climbing": lambda: lsh.Momentum(0.0002, maximize=True, dampening=0.5),
    "Adam, climbing": lambda: lsh.Adam(0.01, maximize=True, weight_decay=0.05),
    "SWAP over Adagrad": lambda: lsh.SWAP(lsh.Adagrad(0.05), 50, 0.5),
    "SWAP over Adagrad, as printed": lambda: lsh.SWAP(
        lsh.Adagrad(0.05, eps=0.3, clip_value=1.0), 50, 0.5, as_printed=True
    ),
    "SWAP over RMSprop": lambda: lsh.SWAP(lsh.RMSprop(0.01, 0.9), 50, 0.5),
    "SWAP over Adam": lambda: lsh.SWAP(lsh.Adam(0.01), 30, 0.6),
    "SWAP over AMSGrad": lambda: lsh.SWAP(lsh.Adam(0.01, 0.9, 0.9, amsgrad=True), 30, 0.6),
    "SWAP over AdamW": lambda: lsh.SWAP(lsh.AdamW(0.01), 1, 0.9),
}
