"""Trainings: asking for one, what comes out of it, days one after the other, recording and replaying."""
