import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes to each partition in turn with the default settings until its standard input ends.
 *
 * <p>Prints {@code sending N}, {@code told N OFFSET} and {@code failed N ERROR}.
 */
public class Writer {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String name = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            for (int next = 0; System.in.available() == 0; next++) {
                int number = next;
                System.out.println("sending " + number);
                String value = name + ":" + number;
                producer.send(
                        new ProducerRecord<>(topic, number % partitions, null, value),
                        (told, error) ->
                                System.out.println(
                                        error == null
                                                ? "told " + number + " " + told.offset()
                                                : "failed " + number + " " + error));
                Thread.sleep(2);
            }
        }
    }
}
