"""Security beside Apache Kafka 4.3: SASL, rules of access, quotas, users, tokens, throttling.

Both brokers have the listeners, users and settings of ``settings.py``. ``scenarios`` holds what is
asked of a broker with an authorizer, ``open_scenarios`` what is asked of one that lets everybody in
where no rule is found.
"""
