"""Many trainings, and what they tell together."""
