import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Signing clients on a broker that asks who they are; each scenario is `NAME=ACCESS_KEY:SECRET_KEY`. */
public class Guarded {
    static final int COUNT = 8;
    static String nameServer;
    static MessageQueue queue;

    public static void main(String[] arguments) throws Exception {
        nameServer = arguments[0];
        queue = new MessageQueue(arguments[1], arguments[2], 0);
        for (int i = 3; i < arguments.length; i++) {
            String[] scenario = arguments[i].split("=", 2);
            String result;
            try {
                result = run(scenario[0], hookOf(scenario[1]));
            } catch (MQBrokerException error) {
                result = "refused with " + error.getResponseCode() + " " + error.getErrorMessage();
            } catch (MQClientException | IllegalStateException error) {
                result = "failed " + error;
            }
            System.out.println(arguments[i].split(":")[0] + ": " + result.replace('\n', ' '));
        }
        System.exit(0);
    }

    static RPCHook hookOf(String keys) {
        String[] pair = keys.split(":");
        return pair.length == 2 ? new AclClientRPCHook(new SessionCredentials(pair[0], pair[1])) : null;
    }

    static String run(String name, RPCHook hook) throws Exception {
        switch (name) {
            case "send": return send(hook);
            case "pull": return pull(hook);
            case "push": return push(hook);
            default: throw new IllegalArgumentException(name);
        }
    }

    static String send(RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("writers", hook);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        try {
            Set<String> statuses = new ConcurrentSkipListSet<>();
            for (int i = 0; i < COUNT; i++) {
                byte[] body = ("body-" + i).getBytes(StandardCharsets.UTF_8);
                Message message = new Message(queue.getTopic(), "TagA", "key-" + i, body);
                message.putUserProperty("name", "\u4e2d\u6587");
                statuses.add(producer.send(message, queue).getSendStatus().toString());
            }
            return statuses.toString();
        } finally {
            producer.shutdown();
        }
    }

    static String pull(RPCHook hook) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("readers", hook);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumerPullTimeoutMillis(20_000);
        consumer.start();
        try {
            int size = consumer.pull(queue, "*", 0, COUNT).getMsgFoundList().size();
            return size + " messages";
        } finally {
            consumer.shutdown();
        }
    }

    /** Heartbeats, the list of members and the progress are signed as well. */
    static String push(RPCHook hook) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer("readers", hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(queue.getTopic(), "*");
        Set<String> seen = new ConcurrentSkipListSet<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            // Routes that were not to be had at the start are asked for again after half a minute.
            long deadline = System.currentTimeMillis() + 75_000;
            while (seen.size() < COUNT && System.currentTimeMillis() < deadline) {
                Thread.sleep(50);
            }
        } finally {
            consumer.shutdown();
        }
        return seen.size() + " messages";
    }
}
