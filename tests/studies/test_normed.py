"""SHAT's network with batch normalisation: its gradient, its evaluation, what it refuses."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import leashed as lsh
from leashed.studies.normed import Normed

DATA = lsh.datasets.synthetic_digits(400, seed=0, test=64)


@pytest.fixture(scope="module")
def net() -> Normed:
    return Normed(DATA.train)


def _flat(data):
    return data.x.reshape(len(data), -1), data.y


def test_the_gradient_is_pytorchs(net: Normed) -> None:
    torch = pytest.importorskip("torch")
    x, y = _flat(DATA.train.head(32))
    theta = net.init(3) + np.float32(0.05)
    out = np.empty_like(theta)
    loss = net.gradient(theta, x, y, out)

    first = torch.nn.Conv2d(1, 8, 5, stride=2, padding=2, bias=False)
    second = torch.nn.Conv2d(8, 16, 2, stride=2, bias=False)
    norms = [torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(16)]
    last = torch.nn.Linear(784, 10)
    parts = [torch.tensor(one) for one in net._parts(theta)]
    with torch.no_grad():
        first.weight.copy_(parts[0].T.reshape(8, 1, 5, 5))
        second.weight.copy_(parts[3].reshape(2, 2, 8, 16).permute(3, 2, 0, 1))
        for norm, place in zip(norms, (1, 4), strict=True):
            norm.weight.copy_(parts[place])
            norm.bias.copy_(parts[place + 1])
        last.weight.copy_(parts[6].T)
        last.bias.copy_(parts[7])
    z = torch.relu(norms[0](first(torch.tensor(x).reshape(-1, 1, 28, 28))))
    z = torch.relu(norms[1](second(z)))
    told = last(z.permute(0, 2, 3, 1).reshape(len(x), -1))
    wanted = torch.nn.functional.cross_entropy(told, torch.tensor(y).long())
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    mine = net._parts(out)
    theirs = [
        first.weight.grad.reshape(8, 25).T,
        norms[0].weight.grad,
        norms[0].bias.grad,
        second.weight.grad.permute(2, 3, 1, 0).reshape(32, 16),
        norms[1].weight.grad,
        norms[1].bias.grad,
        last.weight.grad.T,
        last.bias.grad,
    ]
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-3, atol=1e-5)


def test_it_learns_in_virtual_time_and_evaluation_is_the_share_that_is_wrong(net: Normed) -> None:
    played = lsh.simulate(
        net.model,
        DATA,
        cluster=lsh.simulation.normal(2, 1.0, 0.05),
        mode=lsh.modes.ASP(),
        rule=lsh.SGD(0.05),
        batch_size=16,
        until=lsh.until(epochs=8),
        init=net.init(0),
        seed=0,
    )
    wrong = played.result.validation_loss
    assert wrong[-1] < 0.5 < wrong[0]
    assert wrong[-1] == pytest.approx(net.wrong(played.result.parameters, *_flat(DATA.test)))


def test_what_is_no_number_is_nan(net: Normed) -> None:
    assert math.isnan(net.wrong(np.full_like(net.init(0), np.nan), *_flat(DATA.test)))


def test_other_images_are_refused() -> None:
    odd = dataclasses.replace(DATA.train, x=DATA.train.x.reshape(400, -1), image_shape=None)
    with pytest.raises(ValueError, match="must have images of one channel"):
        Normed(odd)
