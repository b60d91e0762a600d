"""Evaluation: success rates on reserved seeds, with intervals and tests. Import the module you need."""
