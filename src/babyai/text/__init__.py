"""The world in English, for language models: views, whole worlds, effects of actions, prompts, answers and plans."""
