"""Mutation check: breaks places of the sources one at a time and asks whether a test notices. See tools/mutate.py."""
