"""A scikit-learn pipeline whose classifier is trained by native threads, and a grid search over it.

python examples/sklearn_pipeline.py [--threads 2]
"""

import argparse

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import leashed as lsh
from leashed.sklearn import SGDClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads

    x, y = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)

    classifier = SGDClassifier(
        loss="log_loss",
        class_weight="balanced",
        early_stopping=True,
        threads=threads,
        discipline=lsh.Leashed(),
        random_state=0,
    )
    pipeline = make_pipeline(StandardScaler(), classifier)
    # The threads are within a fit, so the fits come one after another (n_jobs=None).
    search = GridSearchCV(
        pipeline,
        {
            "sgdclassifier__alpha": [1e-4, 1e-3],
            "sgdclassifier__penalty": ["l2", "elasticnet"],
            "sgdclassifier__lr": [0.01, 0.1],
        },
        cv=3,
    )
    search.fit(x, y)
    score = search.score(test_x, test_y)
    chosen = {name.removeprefix("sgdclassifier__"): v for name, v in search.best_params_.items()}
    print(
        f"chosen by cross-validation (accuracy {search.best_score_:.3f}): {chosen}\n"
        f"test accuracy {score:.3f} with {threads} threads"
    )
    assert score > 0.9


if __name__ == "__main__":
    main()
