"""Rewards on other packages than the default ones: a module and a catalogue a lock, imported in its environment."""
