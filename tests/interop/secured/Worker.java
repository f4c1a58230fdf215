import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Kafka's own clients, asked as worker.py tells: one JSON object in a line, each way. */
public class Worker {
    private static final int TIMEOUT_MS = 30_000;
    private static final String SECURITY = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer;
            try {
                answer = answer(mapper.readValue(line, Map.class));
            } catch (Exception thrown) {
                answer = refusal(thrown instanceof ExecutionException ? thrown.getCause() : thrown, "");
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
    }

    private static Map<String, Object> refusal(Throwable error, String about) {
        StringBuilder told = new StringBuilder(error.getMessage() + about);
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            told.append(" / ").append(cause);
        }
        return Map.of("error", error.getClass().getSimpleName(), "told", told.toString());
    }

    private static Map<String, Object> answer(Map<String, Object> request) throws Exception {
        Map<String, Object> settings = (Map<String, Object>) request.get("settings");
        String topic = (String) request.get("topic");
        String group = (String) request.get("group");
        switch ((String) request.get("do")) {
            case "hello":
                return Map.of("version", AppInfoParser.getVersion());
            case "produce":
                return produce(properties(settings), topic, (List<String>) request.get("values"));
            case "consume":
                return consume(properties(settings), topic, group, (Integer) request.get("count"));
            default:
                return describe(properties(settings), topic, group);
        }
    }

    private static Map<String, Object> produce(Properties settings, String topic, List<String> values) throws Exception {
        settings.put("max.block.ms", (long) TIMEOUT_MS);
        StringSerializer text = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text);
        try {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : values) {
                sent.add(producer.send(new ProducerRecord<>(topic, value)));
            }
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> each : sent) {
                offsets.add(each.get().offset());
            }
            return Map.of("offsets", offsets);
        } finally {
            producer.close(Duration.ofSeconds(5));
        }
    }

    private static Map<String, Object> consume(Properties settings, String topic, String group, int count)
            throws Exception {
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        StringDeserializer text = new StringDeserializer();
        long end = System.currentTimeMillis() + TIMEOUT_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.subscribe(List.of(topic));
            List<String> values = new ArrayList<>();
            while (values.size() < count) {
                if (System.currentTimeMillis() > end) {
                    throw new TimeoutException(values.size() + " records");
                }
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200))) {
                    values.add(each.value());
                }
            }
            consumer.commitSync();
            return Map.of("values", values);
        }
    }

    private static Map<String, Object> describe(Properties settings, String topic, String group) throws Exception {
        settings.put("default.api.timeout.ms", TIMEOUT_MS);
        try (Admin admin = Admin.create(settings)) {
            int partitions;
            try {
                partitions = admin.describeTopics(List.of(topic))
                        .topicNameValues()
                        .get(topic)
                        .get()
                        .partitions()
                        .size();
            } catch (ExecutionException error) {
                return refusal(error.getCause(), " [" + topic + "]"); // each topic has a future of its own
            }
            String found =
                    admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupId();
            return Map.of("partitions", partitions, "group", found);
        }
    }

    private static Properties properties(Map<String, Object> settings) throws Exception {
        Properties found = new Properties();
        found.put("bootstrap.servers", settings.get("bootstrap"));
        found.put("security.protocol", settings.get("protocol"));
        if (((String) settings.get("protocol")).endsWith("SSL")) {
            found.put("ssl.truststore.type", "PEM");
            found.put("ssl.truststore.location", settings.get("ca"));
        }
        if (settings.containsKey("certificate")) {
            found.put("ssl.keystore.type", "PEM");
            found.put("ssl.keystore.certificate.chain", read(settings.get("certificate")));
            found.put("ssl.keystore.key", read(settings.get("key")));
        }
        if (settings.containsKey("mechanism")) {
            found.put("sasl.mechanism", settings.get("mechanism"));
            found.put("sasl.jaas.config", jaas(settings));
        }
        if (settings.containsKey("token")) {
            // The class of Kafka that takes a token from a place reads it from a file by its URL.
            Path file = Files.createTempFile("token", ".jwt");
            file.toFile().deleteOnExit();
            Files.writeString(file, (String) settings.get("token"));
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", file.toString());
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", file.toUri().toString());
            found.put("sasl.oauthbearer.token.endpoint.url", file.toUri().toString());
            found.put(
                    "sasl.login.callback.handler.class",
                    SECURITY + "oauthbearer.OAuthBearerLoginCallbackHandler");
            found.put("sasl.oauthbearer.jwt.retriever.class", SECURITY + "oauthbearer.FileJwtRetriever");
        }
        return found;
    }

    private static String jaas(Map<String, Object> settings) {
        if (settings.containsKey("token")) {
            return SECURITY + "oauthbearer.OAuthBearerLoginModule required;";
        }
        String module = SECURITY + "scram.ScramLoginModule";
        if (settings.get("mechanism").equals("PLAIN")) {
            module = SECURITY + "plain.PlainLoginModule";
        }
        String more = Boolean.TRUE.equals(settings.get("is_token")) ? " tokenauth=\"true\"" : "";
        return String.format(
                "%s required username=\"%s\" password=\"%s\"%s;",
                module, settings.get("username"), settings.get("password"), more);
    }

    private static String read(Object path) throws Exception {
        return Files.readString(Path.of((String) path));
    }
}
