"""Learning: imitation, DAgger and PPO, and the folders that keep what a run made. Import the module you need."""
