import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic once for every line of its input: NAME_SERVER TOPIC COUNT PULL_BATCH_SIZE.
 *
 * The client's own settings but for the batch size. Prints the messages and the nanoseconds from
 * assigning the queues to the last message; starting and stopping the consumer are left out.
 */
public class LitePull {
    static final int QUEUES_MAX = 256;

    public static void main(String[] arguments) throws Exception {
        long count = Long.parseLong(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        BufferedReader turns = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (int turn = 0; turns.readLine() != null; turn++) {
            System.out.println(read(arguments[0], arguments[1], count, size, turn));
        }
        System.exit(0);
    }

    static String read(String nameServer, String topic, long count, int size, int turn)
            throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-lite-" + turn);
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(size);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            List<MessageQueue> assigned = new ArrayList<>(queues);
            long began = System.nanoTime();
            consumer.assign(assigned);
            for (MessageQueue queue : assigned) {
                consumer.seekToBegin(queue);
            }
            long[] next = new long[QUEUES_MAX];
            long found = 0;
            long heard = began;
            while (found < count && System.nanoTime() - heard < 10_000_000_000L) {
                List<MessageExt> messages = consumer.poll(1_000);
                for (MessageExt message : messages) {
                    // What was pulled before the seek took effect may come again.
                    if (message.getQueueOffset() >= next[message.getQueueId()]) {
                        next[message.getQueueId()] = message.getQueueOffset() + 1;
                        found++;
                        heard = System.nanoTime();
                    }
                }
            }
            return found + " " + (System.nanoTime() - began);
        } finally {
            consumer.shutdown();
        }
    }
}
