import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collection;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads a topic once for every line of its input: NAME_SERVER TOPIC COUNT PULL_BATCH_SIZE.
 *
 * The client's own settings but for the batch size and the start. Prints the messages and the
 * nanoseconds from assigning the queues to the last message; starting and stopping the consumer
 * are left out. Every queue is read from 0, each offset once and in order, or the program fails.
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
        // Not by a seek: `assign` begins to pull at once, and an answer that is just being taken
        // while a seek goes on puts the queue back to where it was, so messages are left out.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
            long began = System.nanoTime();
            consumer.assign(queues);
            long[] next = new long[QUEUES_MAX];
            long found = 0;
            long heard = began;
            while (found < count && System.nanoTime() - heard < 10_000_000_000L) {
                for (MessageExt message : consumer.poll(1_000)) {
                    if (message.getQueueOffset() != next[message.getQueueId()]) {
                        throw new IllegalStateException("queue " + message.getQueueId() + " gave "
                            + message.getQueueOffset() + " for " + next[message.getQueueId()]);
                    }
                    next[message.getQueueId()]++;
                    found++;
                    heard = System.nanoTime();
                }
            }
            return found + " " + (System.nanoTime() - began);
        } finally {
            consumer.shutdown();
        }
    }
}
