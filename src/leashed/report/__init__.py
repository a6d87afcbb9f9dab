"""What studies found, told: tables, figures and one page."""
