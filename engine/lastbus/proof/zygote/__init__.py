"""The zygote: programs that run tests for a replay, started by file name with the interpreter under proof.

They need only pytest there and import nothing from the rest of this package, which the interpreter need not have.
"""
