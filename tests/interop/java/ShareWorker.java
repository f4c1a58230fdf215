import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group that says what becomes of each numbered record: BOOTSTRAP TOPIC GROUP COUNT.
 *
 * <p>Numbers that end with 3 are released the first time, with 7 rejected, with 5 renewed before they are accepted. It
 * prints a word, the number and the delivery count once the broker has taken the acknowledgement, and ends when COUNT
 * records are done with. An acknowledgement that is refused ends it with an error.
 */
public class ShareWorker {
    private static final Set<Integer> renewed = new HashSet<>();

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "40");
        int left = Integer.parseInt(arguments[3]);
        StringDeserializer text = new StringDeserializer();
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(arguments[1]));
            while (left > 0) {
                List<String> lines = new ArrayList<>();
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                    AcknowledgeType type = typeOf(each);
                    consumer.acknowledge(each, type);
                    lines.add(type + " " + each.value() + " " + each.deliveryCount().get());
                    if (type == AcknowledgeType.ACCEPT || type == AcknowledgeType.REJECT) {
                        left--;
                    }
                }
                Map<TopicIdPartition, Optional<KafkaException>> taken = consumer.commitSync();
                taken.values().forEach(error -> error.ifPresent(ShareWorker::fail));
                lines.forEach(System.out::println);
            }
        }
    }

    private static AcknowledgeType typeOf(ConsumerRecord<String, String> record) {
        int number = Integer.parseInt(record.value());
        switch (number % 10) {
            case 3:
                return record.deliveryCount().get() == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            case 5:
                return renewed.add(number) ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
            case 7:
                return AcknowledgeType.REJECT;
            default:
                return AcknowledgeType.ACCEPT;
        }
    }

    private static void fail(KafkaException error) {
        throw error;
    }
}
