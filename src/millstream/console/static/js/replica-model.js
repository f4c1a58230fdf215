// A model of one partition with three replicas, to play with: pure, one tick at a time.
// Times are in ticks; a follower that has not caught up for LATE of them leaves the ISR.

const LATE = 12;

export function newModel() {
  return { leader: 1, tick: 0, high_watermark: 20, produced: 0, replicas: [1, 2, 3].map((broker) => ({ broker, leo: 20, in_isr: true, paused: false, caught_up: 0 })) };
}

/** One moment: the leader takes records, followers fetch, the ISR and the high watermark follow. */
export function tick(model, { producing = 3 } = {}) {
  model.tick += 1;
  const leader = model.replicas.find((r) => r.broker === model.leader);
  const before = leader.leo;
  leader.leo += producing;
  leader.caught_up = model.tick;
  for (const replica of model.replicas) {
    if (replica === leader || replica.paused) continue;
    // A fetch brings what was there when it was asked, in bounded steps.
    replica.leo = Math.min(before, replica.leo + 3 * Math.max(3, producing));
    if (replica.leo >= before) replica.caught_up = model.tick;
  }
  for (const replica of model.replicas) {
    if (replica.in_isr && model.tick - replica.caught_up > LATE) replica.in_isr = false;
    if (!replica.in_isr && replica.leo >= model.high_watermark && replica.caught_up === model.tick) replica.in_isr = true;
    replica.lag = leader.leo - replica.leo;
  }
  const committed = Math.min(...model.replicas.filter((r) => r.in_isr).map((r) => r.leo));
  model.high_watermark = Math.max(model.high_watermark, committed);
  model.isr = model.replicas.filter((r) => r.in_isr).map((r) => r.broker);
  return model;
}
