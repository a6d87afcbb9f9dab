"""What is measured, a section a file: each has ``measure(bench)``, which returns its figures."""
