"""One world: codes, random numbers, state, grid, actions, view, mission and judge."""
