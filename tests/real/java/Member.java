import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group for some seconds: NAME_SERVER TOPIC GROUP SECONDS [MODE [COUNT]].
 * Prints what it gets, its attempt, its queue and offset; in the mode "later" first attempts fail,
 * in "orderly" it consumes in order. It leaves a second after it got COUNT messages.
 */
public class Member {
    private static final AtomicInteger got = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        String mode = arguments.length > 4 ? arguments[4] : "";
        if (mode.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                print(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                print(messages);
                boolean fails = mode.equals("later") && messages.get(0).getReconsumeTimes() == 0;
                return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                             : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        long end = System.nanoTime() + 1_000_000_000L * Integer.parseInt(arguments[3]);
        int count = arguments.length > 5 ? Integer.parseInt(arguments[5]) : Integer.MAX_VALUE;
        while (got.get() < count && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        // What comes beyond the count is seen, too.
        Thread.sleep(1000);
        consumer.shutdown();
        System.exit(0);
    }

    private static synchronized void print(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            System.out.println("GOT " + new String(message.getBody()) + " "
                + message.getReconsumeTimes() + " " + message.getTopic() + " "
                + message.getQueueId() + " " + message.getQueueOffset());
            got.incrementAndGet();
        }
    }
}
