import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group that commits each batch, until its standard input has something: BOOTSTRAP TOPIC GROUP, and
 * settings as NAME=VALUE.
 *
 * <p>Prints {@code saw P OFFSET VALUE}, and with the time on the machine's monotonic clock {@code
 * began P S}, {@code committing P S OFFSET} and {@code committed P S OFFSET}.
 */
public class Reader {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        for (int index = 3; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(arguments[1]), new Listener());
            while (System.in.available() == 0) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) {
                    System.out.printf("saw %d %d %s%n", each.partition(), each.offset(), each.value());
                    positions.put(
                            new TopicPartition(each.topic(), each.partition()),
                            new OffsetAndMetadata(each.offset() + 1));
                }
                if (!positions.isEmpty()) {
                    tell("committing", positions);
                    try {
                        consumer.commitSync(positions);
                        tell("committed", positions);
                    } catch (KafkaException error) {
                        System.err.println(error);
                    }
                }
            }
        }
    }

    private static void tell(String what, Map<TopicPartition, OffsetAndMetadata> positions) {
        positions.forEach(
                (place, position) ->
                        System.out.printf("%s %d %s %d%n", what, place.partition(), now(), position.offset()));
    }

    private static String now() {
        return String.valueOf(System.nanoTime() / 1e9);
    }

    private static class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {}

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            places.forEach(place -> System.out.printf("began %d %s%n", place.partition(), now()));
        }
    }
}
