"""Estimators for scikit-learn over the engine: linear models and multilayer perceptrons whose
gradients are computed by ``threads`` native threads under a discipline of your choice.

    from leashed.sklearn import SGDClassifier
    SGDClassifier(loss="log_loss", threads=8).fit(X, y).score(X, y)

They follow scikit-learn's conventions and take its sparse matrices; a perceptron's first layer goes
by the values that there are, its updates are of all parameters. With
``threads=1`` and a ``random_state`` a fit is deterministic.

**When a fit ends.** As scikit-learn's: when the loss has not fallen by ``tol`` below its best for
``n_iter_no_change`` epochs in a row (perceptrons: for more than so many), the loss of an epoch being
the mean of what its gradients found on each row once (under ``Synchronous`` with several threads
that of the parameters after it), on dense features with the penalty l2; with ``early_stopping``,
when the score of a validation set has not risen by ``tol`` above its best for so long. Where a step
of all threads takes more batches than an epoch has, an epoch that brings no step does not count. A
fit that has to end after ``max_iter`` epochs before that warns with ``ConvergenceWarning``.

**How it goes on.** ``partial_fit``, and ``fit`` with ``warm_start=True``, take up the parameters, the
state of the rule (moments, accumulators), the number of updates t (learning rate schedules, Adam's
bias correction) and the order of the examples where the last call left them. With one thread, n
calls of ``partial_fit`` and one ``fit`` of n epochs (``max_iter=n, tol=None``) on the same data give
the same bits; with the penalty l2 on sparse features nearly the same, for decay reaches columns late,
and all of them at the end of a call. On data with other rows the order of the examples is that of the
next pass over them. Another ``rule`` begins with a state and a t of its own, and so does l1 where
there was none, or none where there was l1.

**Weights.** An example counts with its ``sample_weight`` times the weight of its class: what is
minimised is Σ w loss / n + penalty, as by scikit-learn's own. The step size is for weights whose mean
is 1: they are divided by their mean in the first call, and so is the penalty, so that weights of
thousands make no steps of thousands. A batch's mean divides by the number of its examples, so a
weight of 2 is not the same to the last digit as having the example twice. Scores of a validation set
weigh with ``sample_weight`` alone.

**Scales.** One step size is for all columns. The first call warns (``RuntimeWarning``) where the
sizes of two columns' numbers but zeros differ by 1,000 or more, and names the columns.

**Where one fails.** A ``fit`` or ``partial_fit`` that raises an error, or is interrupted, leaves the
estimator as it was before.

What scikit-learn's own have and these have not: the losses not named below; with ``MLPClassifier`` and
``MLPRegressor`` the solver L-BFGS.

The only room of the package that imports scikit-learn (extra ``sklearn``); nothing else imports it.
"""

from leashed.base.room import offer
from leashed.sklearn.estimators import MLPClassifier, MLPRegressor, SGDClassifier, SGDRegressor

__all__ = ["MLPClassifier", "MLPRegressor", "SGDClassifier", "SGDRegressor"]

offer(__name__, {}, every=("estimators",))
