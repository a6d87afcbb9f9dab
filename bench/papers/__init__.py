"""The claims of the papers, each with the trial that it was given and what came out.

A paper is a module here that has ``CLAIMS``, a list of :class:`bench.papers.claim.Claim`; the first
line of its docstring is its page's title, what follows stands below it. ``python -m bench.papers``
writes ``docs/papers/<paper>.md`` from it and from the results in ``bench/experiments``.
"""
