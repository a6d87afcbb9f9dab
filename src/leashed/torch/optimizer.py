"""PyTorch modules on the engine's memory: an optimizer that changes one line (extra ``torch``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from leashed import _core, schedules
from leashed.base import checks
from leashed.engine.engine import check_rule
from leashed.rules import SGD, SWAP, Adagrad, Adam, AdamW, Momentum, Nesterov, RMSprop, Rule
from leashed.schedules import Schedule
from leashed.torch.embeddings import Embedding, EmbeddingBag, RowOptimizer

__all__ = ["Embedding", "EmbeddingBag", "Optimizer", "RowOptimizer"]


def _parameters(name: str, parameters: Iterable[Any]) -> list[Any]:
    """A list of float32 CPU parameters; an error that names what is none."""
    found = list(parameters)
    if not found:
        raise ValueError(f"{name} holds no parameters")
    for index, p in enumerate(found):
        if not isinstance(p, torch.Tensor):
            raise TypeError(f"{name}[{index}] must be a torch.Tensor, got {type(p).__name__}")
        if p.device.type != "cpu":
            raise ValueError(
                f"{name}[{index}] is on device {p.device}; leashed works on the CPU: module.cpu()"
            )
        if p.dtype != torch.float32:
            raise TypeError(
                f"{name}[{index}] has dtype {p.dtype}, but must be float32: module.float()"
            )
        if not p.numel():
            raise ValueError(f"{name}[{index}] is empty")
    return found


def _flat(parameters: Sequence[Any]) -> NDArray[np.float32]:
    flat = torch.cat([p.detach().reshape(-1) for p in parameters]).numpy()
    theta: NDArray[np.float32] = checks.vector("parameters", flat)
    return theta


def _ends(parameters: Sequence[Any]) -> list[int]:
    return list(accumulate(p.numel() for p in parameters))


def _attach(parameters: Sequence[Any], memory: Any, ends: Sequence[int]) -> None:
    """Makes the parameters views of ``memory``."""
    begin = 0
    for p, end in zip(parameters, ends, strict=True):
        p.data = memory[begin:end].view(p.shape)
        begin = end


def _place(p: Any, begin: int, end: int, kept: list[Any]) -> tuple[int, int, int]:
    """Where the gradient of ``p`` lies; what must live until it was read is added to ``kept``."""
    g = p.grad
    if g.layout is not torch.strided:
        raise TypeError(f"a gradient has the layout {g.layout}; make it dense (sparse=False)")
    if g.dtype is not torch.float32:
        raise TypeError(f"a gradient has dtype {g.dtype}, but must be float32")
    if not g.is_contiguous():
        g = g.contiguous()
    kept.append(g)
    return g.data_ptr(), begin, end


# What torch.optim has in a param_group and these rules have not, or only as said.
_FIXED: dict[type[Rule], dict[str, Any]] = {
    SGD: {"momentum": 0.0, "dampening": 0.0, "nesterov": False},
    Momentum: {"nesterov": False},
    Nesterov: {"nesterov": True},
    Adagrad: {"lr_decay": 0.0},
    RMSprop: {"momentum": 0.0},
    Adam: {"decoupled_weight_decay": False},
    AdamW: {"decoupled_weight_decay": True},
}
# What only the rules have.
_OURS = ("clip_value", "clip_norm", "decoupled", "initial_accumulator")


def _base(rule: Rule) -> Any:
    return rule.rule if isinstance(rule, SWAP) else rule


def _settings(rule: Rule) -> dict[str, Any]:
    """The rule's settings as a param_group of ``torch.optim`` has them."""
    base = _base(rule)
    names = [item.name for item in dataclasses.fields(base) if item.name not in _OURS]
    found = {name: getattr(base, name) for name in names}
    found["lr"] = schedules.of(base.lr).base
    if "beta1" in found:
        found["betas"] = (found.pop("beta1"), found.pop("beta2"))
    return {**_FIXED.get(type(base), {}), **found}


def _changed(rule: Rule, wanted: dict[str, Any]) -> Rule:
    """The rule with the settings of a param_group, which need the same state."""
    changed = _with(rule, wanted)
    if _base(changed).state_names != _base(rule).state_names:
        raise ValueError(
            f"the param_group makes of the rule {_base(changed)!r}, whose state is another one; make "
            "the optimizer with that rule"
        )
    return changed


def _with(rule: Rule, wanted: dict[str, Any]) -> Rule:
    """The rule with settings by PyTorch's names."""
    base, now = _base(rule), _settings(rule)
    changes: dict[str, Any] = {}
    for name, value in wanted.items():
        if value == now[name]:
            continue
        if name == "lr" and isinstance(base.lr, Schedule):
            raise ValueError(
                "the param_group's lr was changed, but the rule has a schedule of its own; "
                "give the rule a number to use PyTorch's schedulers"
            )
        if name == "betas":
            if not (isinstance(value, (tuple, list)) and len(value) == 2):
                raise TypeError(f"betas must be a pair of numbers, got {value!r}")
            changes["beta1"], changes["beta2"] = value
        elif hasattr(base, name):
            changes[name] = value.item() if isinstance(value, torch.Tensor) else value
        else:
            raise ValueError(
                f"the param_group has {name}={value!r}, but {type(base).__name__} has "
                f"{name}={now[name]!r}; make the optimizer with a rule that has it"
            )
    changed = dataclasses.replace(base, **changes)
    return dataclasses.replace(rule, rule=changed) if isinstance(rule, SWAP) else changed


def _set(rule: Rule, wanted: dict[str, Any]) -> Rule:
    """The rule with these settings, of those that it has."""
    known = _settings(rule)
    for name in wanted:
        if name not in known:
            raise TypeError(
                f"{type(_base(rule)).__name__} has no {name}; of PyTorch's names it has "
                f"{', '.join(known)}"
            )
    return _with(rule, wanted)


class _Group:
    """The parameters of one param_group: one vector with the rule's state, changed in place."""

    def __init__(self, parameters: list[Any], rule: Rule) -> None:
        self.rule = rule
        self.settings = _settings(rule)
        self.ends = _ends(parameters)
        self.native = _core.RuleState(rule.choice(), _flat(parameters))
        self.theta = torch.from_numpy(self.native.memory(0))
        _attach(parameters, self.theta, self.ends)
        begins = [0, *self.ends[:-1]]
        self.parts = [
            (p, begin, end, p.data_ptr())
            for p, begin, end in zip(parameters, begins, self.ends, strict=True)
        ]
        # Of each parameter, the steps in which it had a gradient: whole numbers, and as PyTorch
        # keeps them.
        self.updates = [0] * len(parameters)
        self.steps = np.zeros(len(parameters), np.float32)
        memories = {
            name: torch.from_numpy(self.native.memory(k + 1))
            for k, name in enumerate(rule.state_names)
        }
        self.state = [
            {
                "step": step,
                **{name: memory[begin:end].view(p.shape) for name, memory in memories.items()},
            }
            for (p, begin, end, _), step in zip(
                self.parts, torch.from_numpy(self.steps), strict=True
            )
        ]

    def step(self, settings: dict[str, Any]) -> None:
        self.adapt(settings)
        pieces: list[tuple[int, int, int, int]] = []
        kept: list[Any] = []
        stepped: list[int] = []
        for k, (p, begin, end, address) in enumerate(self.parts):
            if p.grad is None:
                continue
            if p.data_ptr() != address:
                raise RuntimeError(
                    "a parameter no longer lies in the optimizer's memory (module.to(), or "
                    "p.data = ...); make the optimizer after that"
                )
            pieces.append((*_place(p, begin, end, kept), self.updates[k]))
            stepped.append(k)
        if not pieces:
            return
        self.native.update_pieces(pieces)
        for k in stepped:
            self.updates[k] += 1
        self.steps[:] = self.updates
        settings["t"] = self.native.t

    def adapt(self, settings: dict[str, Any]) -> None:
        """Takes over what a scheduler has changed in the param_group."""
        wanted = {name: settings[name] for name in self.settings}
        if wanted != self.settings:
            self.rule = _changed(self.rule, wanted)
            self.settings = _settings(self.rule)
            self.native.set_rule(self.rule.choice())

    def check(self, states: Sequence[dict[str, Any]]) -> None:
        """ValueError where this is not the state of such parameters under such a rule."""
        for mine, loaded in zip(self.state, states, strict=True):
            known = {
                name: tuple(v.shape) for name, v in loaded.items() if isinstance(v, torch.Tensor)
            }
            wanted = {name: tuple(v.shape) for name, v in mine.items()}
            if any(value is not None for value in loaded.values()) and (
                known | {"step": ()} != wanted
            ):
                raise ValueError(
                    f"the state's shapes are {known}, and the rule's {wanted}; load the state of an "
                    "optimizer with the same rule and parameters"
                )

    def load(self, states: Sequence[dict[str, Any]], t: int | None) -> None:
        """Takes over loaded state. Of a parameter whose steps nobody has counted (as PyTorch's SGD
        does not) one is known of, where it has state.
        """
        for k, (mine, loaded) in enumerate(zip(self.state, states, strict=True)):
            known = {name: value for name, value in loaded.items() if value is not None}
            self.updates[k] = int(known.get("step", bool(known)))
            for name, value in mine.items():
                if name != "step":
                    value.copy_(known[name]) if name in known else value.zero_()
        self.steps[:] = self.updates
        self.native.t = max(self.updates) if t is None else t


class Optimizer(torch.optim.Optimizer):
    """A ``torch.optim.Optimizer`` whose step is one fused native pass.

        optimizer = lsh.torch.Optimizer(module.parameters(), lsh.Adam(1e-3))

    in place of ``torch.optim.Adam(module.parameters(), 1e-3)``; the training loop stays as it is.
    The parameters become views of one vector, without a copy from then on: make the optimizer after
    ``module.to(...)``. The rule's settings stand in the param_groups by ``torch.optim``'s names, and
    its schedulers change them as usual (``lr`` not where the rule has a schedule of its own).
    ``state_dict`` and ``load_state_dict`` have ``torch.optim``'s structure and names, so the state
    of its optimizer of the same name can be loaded, and the other way round. What does not fit is
    refused, and nothing changed.

    A parameter without a gradient is left as it is, with its state, and no step is counted for it,
    as in PyTorch. A schedule of the rule's own and SWAP go by the steps of the param_group; at a
    period's end SWAP decays the accumulators of such a parameter too.

    Args:
        params: parameters or param_groups, whose settings may differ but for those that another
            state belongs to (``amsgrad``, ``centered``), float32, CPU.
        rule: from ``leashed.rules``, or a word. ``clip_norm`` is over each param_group. Default:
            ``SGD(0.05)``.
        settings: those of the rule by ``torch.optim``'s names, such as ``betas`` of Adam, in place of
            the rule's.

    Raises:
        TypeError, ValueError: a parameter is on another device, of another dtype or empty, a
            param_group or a setting is what the rule has not, or ``rule`` is none.
    """

    def __init__(self, params: Any, rule: Rule | str | None = None, **settings: Any) -> None:
        self._rule = _set(check_rule(rule), settings)
        self._groups: list[_Group] = []
        super().__init__(params, _settings(self._rule))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rule": self._rule}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_rule" in state:  # a copy; PyTorch's load_state_dict comes by without
            self._groups = [_Group(group["params"], self._rule) for group in self.param_groups]
            self._load()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, which become views of a vector of their own."""
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        try:
            parameters = _parameters("params", self.param_groups[index]["params"])
            group = _Group(parameters, self._rule)
            group.adapt(self.param_groups[index])
        except BaseException:  # Ctrl-C too
            del self.param_groups[index]
            raise
        self._groups.append(group)
        self._link()

    def _link(self) -> None:
        for group in self._groups:
            for (p, *_), state in zip(group.parts, group.state, strict=True):
                self.state[p] = state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update from the parameters' gradients; ``closure`` as in PyTorch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, settings in zip(self._groups, self.param_groups, strict=True):
            group.step(settings)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state, of this class or of ``torch.optim``'s optimizer of the same name."""
        before = {"state": self.state, "param_groups": self.param_groups}
        try:
            super().load_state_dict(state_dict)
            for settings in self.param_groups:
                for name, value in self.defaults.items():
                    settings.setdefault(name, value)
            self._load()
        except BaseException:  # Ctrl-C too
            self.__dict__.update(before)
            raise

    def _load(self) -> None:
        """Makes what ``state`` and ``param_groups`` hold the groups' own."""
        loaded = [[dict(self.state.get(p, {})) for p, *_ in g.parts] for g in self._groups]
        for group, states, settings in zip(self._groups, loaded, self.param_groups, strict=True):
            group.check(states)
            group.adapt(settings)
        for group, states, settings in zip(self._groups, loaded, self.param_groups, strict=True):
            group.load(states, settings.get("t"))
        self._link()
