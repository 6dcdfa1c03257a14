import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A consumer and a producer that stay online until they are killed. */
public class Online {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("OnlineProducer");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Message message = new Message(arguments[1], "TagA", "online".getBytes());
        producer.send(message, new TreeSet<>(producer.fetchPublishMessageQueues(arguments[1])).first());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("OnlineGroup");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.subscribe(arguments[1], "TagA || TagB");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        CountDownLatch consumed = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        // Producers are known by heartbeats, too, of which the first is sent before there are routes.
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        // What is consumed is stored every five seconds; the tools shall see it from the start.
        consumed.await(30, TimeUnit.SECONDS);
        Thread.sleep(500);
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Thread.sleep(500);
        System.out.println("both are online");
        Thread.sleep(Long.MAX_VALUE);
    }
}
