"""Training: imitation learning, DAgger, PPO, and run folders. Import the module you need."""
