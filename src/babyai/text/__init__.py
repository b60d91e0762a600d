"""The world in English, for language models: views, whole worlds, outcomes, prompts, answers and plans."""
