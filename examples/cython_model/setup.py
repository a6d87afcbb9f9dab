"""Builds ridge.pyx: python setup.py build_ext --inplace."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import leashed

include = leashed.get_include()
setup(
    name="ridge",
    ext_modules=cythonize(
        [Extension("ridge", ["ridge.pyx"], include_dirs=[include])], include_path=[include]
    ),
)
