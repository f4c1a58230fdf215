"""What a cluster tells of its settings: the look that :mod:`settings_health` judges."""

from __future__ import annotations

from millstream.client.admin import Admin
from millstream.inspection.disk_facts import broker_settings, topic_settings
from millstream.inspection.settings_health import SettingsSight, TopicSettings


def look_at_settings(admin: Admin) -> SettingsSight:
    """Return the settings of every broker and topic."""
    untold: dict[str, str] = {}
    replicas: dict[str, list[int]] = {}
    for place, each in admin.describe_partitions().items():
        replicas.setdefault(place.topic, []).append(len(each.replicas))
    values = topic_settings(admin, sorted(replicas), None, untold)
    return SettingsSight(
        topics={
            topic: TopicSettings(partitions=len(counts), replicas=min(counts), values=values[topic])
            for topic, counts in replicas.items()
            if topic in values
        },
        brokers=broker_settings(admin, untold),
        untold=untold,
    )
