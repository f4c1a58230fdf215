"""The settings of a broker, by what they are about."""
