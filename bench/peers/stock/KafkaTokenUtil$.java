package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/**
 * Stands in for a class that Spark's Kafka connector calls and Maven does not have. It belongs to
 * authentication by delegation tokens; without authentication it has nothing to do.
 */
public class KafkaTokenUtil$ {
  public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

  public Option<?> findMatchingTokenClusterConfig(SparkConf conf, String bootstrapServers) {
    return Option.empty();
  }

  public boolean needTokenUpdate(Map<String, Object> settings, Option<?> cluster) {
    return false;
  }
}
