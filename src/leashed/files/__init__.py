"""What is written and read again: models, folders of models and tables, checkpoints, exports."""
