"""What is trained: networks and linear models, graphs over tables, models of your own."""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.models.graphs import *
    from leashed.models.layers import *
    from leashed.models.network import *
    from leashed.models.recommenders import *

offer(
    __name__,
    {
        "_parameters": "INITIALISATIONS",
        "_reads": "TableSpec",
        "external": "BatchRows External external",
        "factorisation": "FactorisationMachine",
        "graphs": "AUGRU AttentionPool AttentionScores AttentionUnit Concat Cross Dot Embedding "
        "Evaluated FM GRU Graph InBatchSoftmax Input Node POOLINGS Product SampledLogits Sum Zip",
        "layers": "BatchNorm Conv2d DataNorm Dense Dropout LAYERS Layer MaxPool ReLU Sigmoid Tanh",
        "network": "LOSSES Model cnn ffm fm lenet linear_regression linear_svm logistic_regression "
        "mlp softmax_regression",
        "recommenders": "dcn deepfm dien din dlrm ecommerce wide_deep youtube_dnn",
    },
    every=(
        "network",
        "layers",
        "graphs",
        "recommenders",
    ),
)
