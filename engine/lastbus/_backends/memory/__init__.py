"""The memory back end: everything lives and ends with the process."""
