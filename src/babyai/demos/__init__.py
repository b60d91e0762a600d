"""Demonstrations: collected from the expert or recorded from people, stored, checked, and replayed to learners.

A demonstration is a seed and its actions; whatever else a learner needs comes out of replaying it. Import the module
you need: this page imports none of them.
"""
