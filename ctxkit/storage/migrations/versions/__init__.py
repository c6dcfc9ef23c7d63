"""One module a revision. A revision that has been released never changes."""
