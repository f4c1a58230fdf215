"""The audit log as a pure machine: kinds of event, records, rate limit, what was left out."""
