import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * RocketMQ's own transactional producer: what it commits, rolls back, and is asked about.
 *
 * The phases run in processes of their own: "orphan" dies with two messages open, "heir" is asked.
 */
public class Transactions {
    static String nameServer;
    static String topic;
    static final Set<String> asked = new ConcurrentSkipListSet<>();

    static class Listener implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(message.getKeys().split("-")[0]);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            boolean isWhole = message.getTransactionId().equals(
                message.getProperty("UNIQ_KEY")) && message.getTopic().equals(topic);
            asked.add(new String(message.getBody(), StandardCharsets.UTF_8) + " " + isWhole);
            return LocalTransactionState.valueOf(message.getKeys().split("-")[1]);
        }
    }

    static void send(TransactionMQProducer producer, String body, String keys) throws Exception {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "TagT", keys, bytes);
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        System.out.println(body + ": " + result.getSendStatus() + " "
            + result.getLocalTransactionState() + " "
            + (result.getTransactionId() == null
                || result.getTransactionId().equals(message.getProperty("UNIQ_KEY"))));
    }

    static Set<String> seen(int wanted) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("Seen" + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagT");
        consumer.start();
        Set<String> bodies = new TreeSet<>();
        long end = System.currentTimeMillis() + 40_000;
        // A little longer than needed: more than wanted would be as wrong as less.
        for (int more = 5; more > 0 && System.currentTimeMillis() < end;) {
            for (MessageExt message : consumer.poll(300)) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                bodies.add(bodies.contains(body) ? body + " TWICE" : body);
            }
            more -= bodies.size() >= wanted ? 1 : 0;
        }
        consumer.shutdown();
        return bodies;
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        nameServer = arguments[0];
        topic = arguments[1];
        TransactionMQProducer producer = new TransactionMQProducer("TransactionsProducer");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(10_000);
        producer.setMqClientApiTimeout(20_000);
        producer.setTransactionListener(new Listener());
        producer.start();
        if (arguments[2].equals("orphan")) {
            send(producer, "a", "COMMIT_MESSAGE");
            send(producer, "b", "ROLLBACK_MESSAGE");
            send(producer, "c", "COMMIT_MESSAGE");
            send(producer, "d", "UNKNOW-COMMIT_MESSAGE");
            send(producer, "e", "UNKNOW-ROLLBACK_MESSAGE");
            // Killed before it can be asked: no farewell to anybody.
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
        // A producer is known to the brokers of the topics that it has sent to.
        send(producer, "f", "COMMIT_MESSAGE");
        System.out.println("seen: " + seen(4));
        long end = System.currentTimeMillis() + 40_000;
        while (asked.size() < 2 && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        System.out.println("asked: " + asked);
        producer.shutdown();
        System.exit(0);
    }
}
