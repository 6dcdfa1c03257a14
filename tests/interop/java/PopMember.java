import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member that lets the broker say how it consumes: NAME_SERVER TOPIC GROUP SECONDS COUNT FAILS.
 * Prints what it gets with its attempt and its receipt; bodies that FAILS begins fail at first. It
 * leaves two seconds after it got COUNT messages.
 */
public class PopMember {
    private static final AtomicInteger got = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10_000);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            print(messages);
            MessageExt first = messages.get(0);
            boolean fails = new String(first.getBody()).startsWith(arguments[5])
                && first.getReconsumeTimes() == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                         : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.nanoTime() + 1_000_000_000L * Integer.parseInt(arguments[3]);
        while (got.get() < Integer.parseInt(arguments[4]) && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        // What comes beyond the count is seen, too.
        Thread.sleep(2000);
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void print(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            String receipt = String.valueOf(message.getProperty("POP_CK")).replace(' ', ',');
            System.out.println("GOT " + new String(message.getBody()) + " "
                + message.getReconsumeTimes() + " " + message.getTopic() + " " + receipt);
            got.incrementAndGet();
        }
    }
}
