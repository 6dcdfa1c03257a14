import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Times of delivery and recall as RocketMQ 5.3's own producer asks for them. */
public class Timers {
    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String[] arguments) throws Exception {
        String topic = arguments[1];
        DefaultMQProducer producer = new DefaultMQProducer("TimersProducer");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(10_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        long start = System.currentTimeMillis();
        List<Message> messages = new ArrayList<>();
        for (String body : new String[] {"deliver", "delay-ms", "delay-s", "level", "past", "recalled"}) {
            messages.add(new Message(topic, "TagT", body.getBytes(StandardCharsets.UTF_8)));
        }
        messages.get(0).setDeliverTimeMs(start + 3_000);
        messages.get(1).setDelayTimeMs(3_000);
        messages.get(2).setDelayTimeSec(3);
        messages.get(3).setDelayTimeLevel(1);
        messages.get(4).setDeliverTimeMs(start - 1_000);
        messages.get(5).setDelayTimeMs(4_000);
        String handle = null;
        String key = null;
        for (Message message : messages) {
            SendResult result = producer.send(message);
            handle = result.getRecallHandle();
            key = message.getProperty("UNIQ_KEY");
            boolean hasHandle = handle != null;
            System.out.println(new String(message.getBody(), StandardCharsets.UTF_8) + ": "
                + result.getSendStatus() + " handle " + hasHandle);
        }
        System.out.println("recall: " + producer.recallMessage(topic, handle).equals(key));
        try {
            Message far = new Message(topic, "far".getBytes(StandardCharsets.UTF_8));
            far.setDelayTimeSec(4 * 24 * 3600);
            producer.send(far);
            System.out.println("far: taken");
        } catch (MQBrokerException error) {
            System.out.println("far: code " + error.getResponseCode());
        }
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("TimersConsumer");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagT");
        consumer.start();
        TreeMap<String, Boolean> seen = new TreeMap<>();
        while (System.currentTimeMillis() < start + 8_000 || seen.size() < 5 && System.currentTimeMillis() < start + 40_000) {
            for (MessageExt message : consumer.poll(200)) {
                long after = message.getStoreTimestamp() - start;
                // RocketMQ rounds down to its seconds.
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                seen.put(body, body.equals("past") ? after < 3_000 : after >= (body.equals("level") ? 1_000 : 1_900));
            }
        }
        System.out.println("seen: " + seen);
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }
}
