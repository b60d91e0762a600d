"""Rendering: tiles, RGB observations, images of whole worlds, terminal text, PNG and GIF files.

Import the module you need. This `__init__` imports none of them, so that text needs no compiler and images no Pillow.
"""
