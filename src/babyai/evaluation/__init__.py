"""How good a player is: success on missions kept for that, with intervals and tests that say how sure this is.

Import the module you need: this page imports none of them.
"""
