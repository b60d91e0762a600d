"""The paper's tables: what to run for each cell, running it, and reporting it next to the paper's figures."""
