#!/bin/sh
# One round: load what is new, then prove it. Exit code 0: the table holds the topic.
#
# flock keeps a round from starting while the one before still runs; that is no failure.
set -u
BOOTSTRAP=${BOOTSTRAP:-localhost:9092}
TOPIC=${TOPIC:-clicks}
TABLE=${TABLE:-delta:/srv/lake/clicks}
LOCK=${LOCK:-/tmp/millstream-$TOPIC.lock}

exec 9>"$LOCK"
flock -n 9 || exit 0

case ${1:-load} in
load)
    millstream load "$TOPIC" --to "$TABLE" --format json --engine local -b "$BOOTSTRAP" --json || exit
    millstream audit "$TOPIC" "$TABLE" -b "$BOOTSTRAP"
    ;;
maintain)
    millstream maintain "$TABLE" --app-id "load:$TOPIC"
    ;;
*)
    echo "usage: $0 [load|maintain]" >&2
    exit 2
    ;;
esac
