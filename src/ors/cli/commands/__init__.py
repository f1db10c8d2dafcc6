"""Commands, each in a file of its name, in rooms by what they are for."""
