"""The expert: a partially sighted planner that carries out any mission, and advises whoever does so instead."""
