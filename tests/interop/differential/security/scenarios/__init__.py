"""What is asked of a broker with an authorizer, one module for each API or subject."""
