package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/**
 * Stands in for a class that Spark's Kafka connector calls and Maven does not have. It belongs to
 * authentication by delegation tokens; without authentication it has nothing to do.
 */
public class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  public Seq<?> redactParams(Seq<?> settings) {
    return settings;
  }
}
