"""Training by several processes, on one machine or many: trainers, sync servers and a master.

``docs/cluster.md`` tells how they are started, and what each does.
"""
