import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Lets Apache Kafka read messages and write them again.
 *
 * Each line of the input is "class version hex". Each line of the output is what Kafka made of it:
 * the bytes it wrote in hex, a space, and the message as Kafka's own JSON; or "error" and why.
 */
public class KafkaCodec {
    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.println(rewrite(words[0], Short.parseShort(words[1]), words[2]));
            } catch (Exception error) {
                out.println("error " + error);
            }
        }
        out.flush();
    }

    private static String rewrite(String name, short version, String hex) throws Exception {
        Class<?> type = Class.forName(name);
        var message = (ApiMessage) type.getDeclaredConstructor().newInstance();
        ByteBuffer given = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(given), version);
        if (given.hasRemaining()) {
            return "error " + given.remaining() + " bytes were not read";
        }
        var cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        Object json = Class.forName(name + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false);
        return HexFormat.of().formatHex(written.array()) + " " + json;
    }
}
