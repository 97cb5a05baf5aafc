"""What a replay costs, measured beside what it is compared with, in one run on the same machine."""
