"""This broker as the controller: the seat, the desk where decisions are made, pushes to all."""
