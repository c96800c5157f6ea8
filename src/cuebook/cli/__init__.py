"""The command line door: arguments in, the public API called, answers and one-line errors out."""
