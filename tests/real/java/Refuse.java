import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** NAME_SERVER TOPIC GROUP TAG: refuses one message, so that the broker stores it for a retry. */
public class Refuse {
    public static void main(String[] arguments) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], arguments[3]);
        CountDownLatch again = new CountDownLatch(1);
        MessageListenerConcurrently listener = (messages, context) -> {
            if (messages.get(0).getReconsumeTimes() > 0) {
                again.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        };
        consumer.registerMessageListener(listener);
        consumer.start();
        boolean came = again.await(90, TimeUnit.SECONDS);
        consumer.shutdown();
        System.exit(came ? 0 : 1);
    }
}
