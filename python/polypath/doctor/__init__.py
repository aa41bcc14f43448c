"""What `polypath doctor` finds out: whether copies are caught and split here, and if not, why."""
