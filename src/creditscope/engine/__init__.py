"""Train many runs at once: one pure step for one run, stacked into fleets, looped, logged and checkpointed."""
