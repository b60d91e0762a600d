"""A single world: codes, random numbers, state, actions, view, missions, and the judge."""
