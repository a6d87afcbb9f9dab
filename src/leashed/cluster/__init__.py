"""Training on several machines: master, sync servers and trainers, each a process of its own."""
