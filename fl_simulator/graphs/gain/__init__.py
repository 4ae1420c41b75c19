"""Uncoordinated initialisation: the gain that undoes what averaging among peers does to initial parameters."""
