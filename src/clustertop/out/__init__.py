"""Ways out of the console for transitions: a log, a command, a web hook.

Command and web hook never hold up the judgement. The log is a short append to a file, made at once: it belongs on a
local disk.
"""
