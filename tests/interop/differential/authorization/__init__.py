"""Answers under an authorizer, beside those of Apache Kafka 4.3 with its StandardAuthorizer."""
