"""Worlds made visible: tiles, RGB observations, whole pictures, terminal text, PNG and GIF files.

Import the module you need; this page imports none of them, so that text costs no compiler and pictures no Pillow.
"""
