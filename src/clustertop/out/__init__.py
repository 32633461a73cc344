"""Ways out of the console for transitions: a log, a command, a web hook. None of them ever holds up the judgement."""
