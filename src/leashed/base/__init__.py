"""What every room stands on: checks of arguments, warnings, files, names that are found when asked for."""
