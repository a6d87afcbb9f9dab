"""The ShadowSync paper's experiments, with trainers and sync servers on this machine."""
