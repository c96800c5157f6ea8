"""How answers are printed in a terminal."""
