import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends what producers of RocketMQ send: NAME_SERVER TOPIC BROKER KIND... to queue 0. */
public class Send {
    private static DefaultMQProducer producer;
    private static MessageQueue queue;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        producer = new DefaultMQProducer("java-senders");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(20_000);
        producer.setMaxMessageSize(8 << 20);
        producer.start();
        topic = arguments[1];
        queue = new MessageQueue(topic, arguments[2], 0);
        for (int i = 3; i < arguments.length; i++) {
            send(arguments[i]);
        }
        producer.shutdown();
        System.exit(0);
    }

    private static void send(String kind) throws Exception {
        switch (kind) {
            case "plain": {
                one(new Message(topic, bytes("plain")));
                Message tagged = new Message(topic, "TagA", "key1 key2", bytes("tagged"));
                tagged.putUserProperty("user", "1");
                tagged.setFlag(-7);
                one(tagged);
                break;
            }
            case "unicode": {
                Message unicode = new Message(topic, "中文", "ключ 🔑", bytes("héllo 😀"));
                unicode.putUserProperty("ünï", "日本語 😀");
                unicode.putUserProperty("spaces", "  x  y ");
                unicode.putUserProperty("quotes", "\"{[:]}\\");
                one(unicode);
                break;
            }
            case "surrogate": {
                Message lone = new Message(topic, bytes("lone"));
                lone.putUserProperty("lone", "a\ud800b");
                one(lone);
                break;
            }
            case "collision":
                one(new Message(topic, "AaAa", bytes("collide1")));
                one(new Message(topic, "BBBB", bytes("collide2")));
                break;
            case "properties": {
                Message many = new Message(topic, bytes("many"));
                for (int i = 0; i < 1_000; i++) {
                    many.putUserProperty("name" + i, "v".repeat(i % 9 + 1) + i);
                }
                one(many);
                break;
            }
            case "odd":
                for (int i = 0; i < 200; i++) {
                    one(odd(i));
                }
                break;
            case "limit": {
                // All properties together may take 32,767 bytes.
                Message full = new Message(topic, "tag", "key", bytes("limit"));
                full.putUserProperty("full", "é".repeat(16_000));
                full.putUserProperty("rest", "x".repeat(500));
                one(full);
                break;
            }
            case "batch3": case "batch10":
                check(producer.send(batch(Integer.parseInt(kind.substring(5))), queue));
                break;
            case "encoded":
                // What the body of a batch request holds, without sending it.
                System.out.println(hex(MessageDecoder.encodeMessages(batch(3))));
                break;
            case "large": {
                // Noise of a sort: compressing it must not make it small.
                byte[] large = new byte[4 << 20];
                long state = 42;
                for (int i = 0; i < large.length; i++) {
                    state = state * 6364136223846793005L + 1442695040888963407L;
                    large[i] = (byte) (state >> 56);
                }
                one(new Message(topic, "large", large));
                break;
            }
            case "zlib": case "lz4": case "zstd":
                // The type is chosen by -Drocketmq.message.compressType, read when a producer starts.
                one(new Message(topic, kind, bytes(("abcdefghij" + kind).repeat(500))));
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Fifty properties of strange text; every tenth message has separators in them. */
    private static Message odd(int number) {
        String[] pieces = {
            " ", "\0", "\t", "\n", "\r\n", "=", ":", ";", ",", "\"", "'", "\\", "%", "{", "}", "[", "]",
            "\u0003", "\u001f", "\u007f", "\u0085", "\u00a0", "\u2028", "\u200f", "\ufeff", "\uffff", "\ufffd",
            "e\u0301", "é", "ß", "日本", "😀", "\ud83d", "\ude00", "null", "true", "0", "-1", "1e9", "",
        };
        Random random = new Random(number);
        Message message = new Message(topic, bytes("odd" + number));
        for (int i = 0; i < 50; i++) {
            StringBuilder name = new StringBuilder("n" + i), value = new StringBuilder();
            for (int j = random.nextInt(4); j > 0; j--) {
                name.append(pieces[random.nextInt(pieces.length)]);
            }
            for (int j = random.nextInt(9); j > 0; j--) {
                value.append(pieces[random.nextInt(pieces.length)]);
            }
            if (number % 10 == 9 && random.nextInt(3) == 0) {
                (random.nextBoolean() ? name : value).append((char) (1 + random.nextInt(2))).append(i);
            }
            MessageAccessor.putProperty(message, name.toString(), value.toString());
        }
        return message;
    }

    private static List<Message> batch(int count) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, i % 2 == 0 ? "TagA" : null, "k" + i, bytes("batch-" + i));
            message.setFlag(i);
            batch.add(message);
        }
        return batch;
    }

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes) {
            hex.append(String.format("%02x", b));
        }
        return hex.toString();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void one(Message message) throws Exception {
        check(producer.send(message, queue));
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }
}
