"""This broker's part in a cluster: its registration, who is alive, what it asks the controller."""
