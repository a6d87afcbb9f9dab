"""What is trained: networks and linear models, graphs over tables, models of your own."""

from typing import TYPE_CHECKING

from leashed.base.room import offer

if TYPE_CHECKING:
    from leashed.models._parameters import INITIALISATIONS
    from leashed.models._reads import TableSpec
    from leashed.models.external import BatchRows, External, external
    from leashed.models.factorisation import FactorisationMachine
    from leashed.models.graphs import (
        AUGRU,
        FM,
        GRU,
        POOLINGS,
        AttentionPool,
        AttentionScores,
        AttentionUnit,
        Concat,
        Cross,
        Dot,
        Embedding,
        Evaluated,
        Graph,
        Input,
        Node,
        Product,
        SampledLogits,
        Sum,
        Zip,
    )
    from leashed.models.layers import (
        LAYERS,
        BatchNorm,
        Conv2d,
        DataNorm,
        Dense,
        Layer,
        MaxPool,
        ReLU,
    )
    from leashed.models.network import (
        LOSSES,
        Model,
        cnn,
        ffm,
        fm,
        lenet,
        linear_regression,
        linear_svm,
        logistic_regression,
        mlp,
        softmax_regression,
    )
    from leashed.models.recommenders import (
        dcn,
        deepfm,
        dien,
        din,
        dlrm,
        ecommerce,
        wide_deep,
        youtube_dnn,
    )

    __all__ = [
        "AUGRU",
        "FM",
        "GRU",
        "INITIALISATIONS",
        "LAYERS",
        "LOSSES",
        "POOLINGS",
        "AttentionPool",
        "AttentionScores",
        "AttentionUnit",
        "BatchNorm",
        "BatchRows",
        "Concat",
        "Conv2d",
        "Cross",
        "DataNorm",
        "Dense",
        "Dot",
        "Embedding",
        "Evaluated",
        "External",
        "FactorisationMachine",
        "Graph",
        "Input",
        "Layer",
        "MaxPool",
        "Model",
        "Node",
        "Product",
        "ReLU",
        "SampledLogits",
        "Sum",
        "TableSpec",
        "Zip",
        "cnn",
        "dcn",
        "deepfm",
        "dien",
        "din",
        "dlrm",
        "ecommerce",
        "external",
        "ffm",
        "fm",
        "lenet",
        "linear_regression",
        "linear_svm",
        "logistic_regression",
        "mlp",
        "softmax_regression",
        "wide_deep",
        "youtube_dnn",
    ]

offer(
    __name__,
    {
        "_parameters": "INITIALISATIONS",
        "_reads": "TableSpec",
        "external": "BatchRows External external",
        "factorisation": "FactorisationMachine",
        "graphs": "AUGRU AttentionPool AttentionScores AttentionUnit Concat Cross Dot Embedding "
        "Evaluated FM GRU Graph Input Node POOLINGS Product SampledLogits Sum Zip",
        "layers": "BatchNorm Conv2d DataNorm Dense LAYERS Layer MaxPool ReLU",
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
