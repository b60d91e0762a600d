"""Demonstrations: collected from the expert or recorded from people, stored, verified, and replayed for training.

A demonstration is a seed and its actions; replaying it gives the observations. Import the module you need.
"""
