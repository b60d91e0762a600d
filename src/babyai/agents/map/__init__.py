"""An agent that draws a map of what it has seen, and a transformer that reads it."""
