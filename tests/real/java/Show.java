import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** NAME_SERVER TOPIC [EXPRESSION]: a topic's messages as JSON lines, all text as hex of its UTF-8. */
public class Show {
    public static void main(String[] arguments) throws Exception {
        String expression = arguments.length > 2 ? arguments[2] : "*";
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("java-readers");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.start();
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(arguments[1]))) {
            long at = consumer.minOffset(queue);
            long end = consumer.maxOffset(queue);
            while (at < end) {
                PullResult result = consumer.pull(queue, expression, at, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        out.println(line(queue.getBrokerName(), message));
                    }
                }
                if (result.getNextBeginOffset() <= at) {
                    throw new IllegalStateException(result.toString());
                }
                at = result.getNextBeginOffset();
            }
        }
        out.flush();
        consumer.shutdown();
        System.exit(0);
    }

    private static String line(String broker, MessageExt message) {
        StringBuilder properties = new StringBuilder();
        for (Map.Entry<String, String> entry : new TreeMap<>(message.getProperties()).entrySet()) {
            // Put there by the client when it pulled.
            if (!entry.getKey().equals("MIN_OFFSET") && !entry.getKey().equals("MAX_OFFSET")) {
                properties.append(properties.length() == 0 ? "" : ",");
                properties.append(text(entry.getKey())).append(":").append(text(entry.getValue()));
            }
        }
        String[] fields = {
            "topic", text(message.getTopic()), "broker", text(broker),
            "queueId", number(message.getQueueId()), "queueOffset", number(message.getQueueOffset()),
            "storeSize", number(message.getStoreSize()), "bodyCrc", number(message.getBodyCRC()),
            "sysFlag", number(message.getSysFlag()), "flag", number(message.getFlag()),
            "bornMs", number(message.getBornTimestamp()), "storeMs", number(message.getStoreTimestamp()),
            "bornHost", host(message.getBornHost()), "storeHost", host(message.getStoreHost()),
            "physicalOffset", number(message.getCommitLogOffset()),
            "reconsumeTimes", number(message.getReconsumeTimes()),
            "prepared", number(message.getPreparedTransactionOffset()),
            "msgId", text(message.getMsgId()),
            "offsetMsgId", text(((MessageClientExt) message).getOffsetMsgId()),
            "tags", text(message.getTags()), "keys", text(message.getKeys()),
            "body", hex(message.getBody()), "properties", "{" + properties + "}",
        };
        StringBuilder line = new StringBuilder();
        for (int i = 0; i < fields.length; i += 2) {
            line.append(i == 0 ? "{" : ",").append('"').append(fields[i]).append("\":").append(fields[i + 1]);
        }
        return line.append("}").toString();
    }

    private static String number(long value) {
        return Long.toString(value);
    }

    private static String text(String value) {
        return value == null ? "null" : hex(value.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder("\"");
        for (byte b : bytes) {
            hex.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return hex.append('"').toString();
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        String bytes = hex(host.getAddress().getAddress());
        return bytes.substring(0, bytes.length() - 1) + ":" + host.getPort() + '"';
    }
}
