"""Starting programs that know nothing of polypath, under its preloaded library (the shim)."""
