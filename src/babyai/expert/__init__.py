"""The expert: a planner with the agent's partial view that solves missions and advises other agents."""
