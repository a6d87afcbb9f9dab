"""Models and data that words describe: those of a command's options, and of a plan's file."""
