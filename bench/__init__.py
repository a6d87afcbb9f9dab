"""Everything that is said about leashed's speed, measured: see README.md."""
