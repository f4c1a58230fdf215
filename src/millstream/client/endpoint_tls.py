"""TLS to the endpoints of OAUTHBEARER, which give tokens and the keys that verify them.

The options ``ssl.*`` of the login module are the settings of that connection, as in Apache Kafka
(``JaasOptionsUtils.getSslClientConfig``): the endpoint has its own authority, and perhaps wants a
certificate of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

from millstream.client.core.security_settings import SecuritySettings
from millstream.client.core.settings import read_settings
from millstream.model.errors import ConfigError

_SETTINGS: Final = "ssl."


def https_context(options: Mapping[str, str], *, ca_location: str | None = None) -> ssl.SSLContext:
    """Return the context for ``https:`` endpoints from the options of a login module.

    ``ca_location`` is a file of authorities for a client without such options; without either those
    of the system are trusted. ConfigError names the option or the file that is wrong.
    """
    of_tls = {name: value for name, value in options.items() if name.startswith(_SETTINGS)}
    if of_tls and ca_location is not None:
        raise ConfigError(
            "only one of https.ca.location and ssl.… in sasl.jaas.config can be given"
        )
    if of_tls:
        from millstream.client.tls_context import client_context

        try:
            return client_context(read_settings(SecuritySettings, of_tls))
        except ConfigError as error:
            raise ConfigError(f"sasl.jaas.config: {error}") from None
    try:
        return ssl.create_default_context(cafile=ca_location)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificate"
        raise ConfigError(f"https.ca.location={ca_location}: {reason}") from None
