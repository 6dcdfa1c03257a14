import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own Java clients at work; every scenario prints what it saw, and nothing of times. */
public class Clients {
    static String nameServer;
    static String topic;

    public static void main(String[] arguments) throws Exception {
        nameServer = arguments[0];
        topic = arguments[1];
        for (int i = 2; i < arguments.length; i++) {
            String name = arguments[i];
            String result;
            try {
                result = run(name);
            } catch (Throwable error) {
                result = "FAILED";
                for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                    result += " " + cause;
                }
                error.printStackTrace();
            }
            System.out.println(name + ": " + result.replace('\n', ' '));
            System.out.flush();
        }
        System.exit(0);
    }

    static String run(String name) throws Exception {
        switch (name) {
            case "send": return send();
            case "assign": return assign();
            case "lite-tag": return lite(MessageSelector.byTag("TagA || TagC"));
            case "lite-sql": return lite(MessageSelector.bySql("n BETWEEN 3 AND 5 OR TAGS = 'TagB'"));
            case "push": return push("push", MessageSelector.byTag("*"), false, 40);
            case "push-tag": return push("tag", MessageSelector.byTag("TagB"), false, 13);
            case "push-sql":
                return push("sql", MessageSelector.bySql("n > 30 AND TAGS IS NOT NULL"), false, 9);
            case "push-wrong-sql": return push("wrong", MessageSelector.bySql("n >"), false, 0);
            case "broadcast": return push("broadcast", MessageSelector.byTag("*"), true, 40);
            case "broadcast-store": return broadcastStore();
            case "orderly": return orderly();
            case "retry": return retry();
            default: throw new IllegalArgumentException(name);
        }
    }

    static Message message(int number) {
        byte[] body = ("body-" + number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "Tag" + "ABC".charAt(number % 3), "key-" + number, body);
        message.putUserProperty("n", Integer.toString(number));
        return message;
    }

    /** On a busy machine the first request of a connection may come to nothing. */
    static List<MessageQueue> queues(Callable<Collection<MessageQueue>> fetch) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                return new ArrayList<>(new TreeSet<>(fetch.call()));
            } catch (MQClientException error) {
                if (attempt == 5) {
                    throw error;
                }
                Thread.sleep(1_000);
            }
        }
    }

    /** 8 messages each way, two a queue, and 16 as a batch in the first queue: 40 in all. */
    static String send() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("ClientsProducer");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        List<MessageQueue> queues = queues(() -> producer.fetchPublishMessageQueues(topic));
        Set<String> statuses = new ConcurrentSkipListSet<>();
        for (int i = 0; i < 8; i++) {
            statuses.add("sync " + producer.send(message(i), queues.get(i % 4)).getSendStatus());
        }
        CountDownLatch done = new CountDownLatch(8);
        for (int i = 8; i < 16; i++) {
            producer.send(message(i), queues.get(i % 4), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    statuses.add("async " + result.getSendStatus());
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    statuses.add("async " + error);
                    done.countDown();
                }
            });
        }
        done.await(20, TimeUnit.SECONDS);
        for (int i = 16; i < 24; i++) {
            producer.sendOneway(message(i), queues.get(i % 4));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 24; i < 40; i++) {
            batch.add(message(i));
        }
        statuses.add("batch " + producer.send(batch, queues.get(0)).getSendStatus());
        // A oneway send has no answer to wait for.
        long deadline = System.currentTimeMillis() + 10_000;
        long total = 0;
        while (total < 40 && System.currentTimeMillis() < deadline) {
            total = 0;
            for (MessageQueue queue : queues) {
                total += producer.maxOffset(queue);
            }
            Thread.sleep(20);
        }
        producer.shutdown();
        return queues.size() + " queues, " + total + " messages, " + statuses;
    }

    static DefaultLitePullConsumer newLite(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static Set<String> drain(DefaultLitePullConsumer consumer, int wanted, int seconds) {
        Set<String> seen = new TreeSet<>();
        int count = 0;
        long deadline = System.currentTimeMillis() + seconds * 1_000L;
        while (count < wanted && System.currentTimeMillis() < deadline) {
            for (MessageExt message : consumer.poll(200)) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
                count++;
            }
        }
        // More than wanted would be as wrong as less.
        for (MessageExt message : consumer.poll(500)) {
            seen.add("MORE " + new String(message.getBody(), StandardCharsets.UTF_8));
        }
        return seen;
    }

    interface Seek {
        void run() throws MQClientException;
    }

    /** The client interrupts its pulls for a seek, and that may close the connection of the seek. */
    static void seek(Seek seek) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                seek.run();
                return;
            } catch (MQClientException error) {
                if (attempt == 5) {
                    throw error;
                }
                Thread.sleep(1_000);
            }
        }
    }

    static String assign() throws Exception {
        DefaultLitePullConsumer consumer = newLite("ClientsAssign");
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = queues(() -> consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        int all = drain(consumer, 40, 20).size();
        consumer.commitSync();
        StringBuilder result = new StringBuilder(all + " from the start, committed");
        for (MessageQueue queue : queues) {
            result.append(' ').append(consumer.committed(queue));
        }
        for (MessageQueue queue : queues) {
            seek(() -> consumer.seek(queue, 2));
        }
        result.append(", ").append(drain(consumer, 32, 20).size()).append(" from 2");
        for (MessageQueue queue : queues) {
            seek(() -> consumer.seekToEnd(queue));
        }
        result.append(", ").append(drain(consumer, 1, 1).size()).append(" from the end");
        long hour = 3_600_000L;
        long now = System.currentTimeMillis();
        result.append(", an hour ago ").append(consumer.offsetForTimestamp(queues.get(0), now - hour));
        consumer.shutdown();
        return result.toString();
    }

    static String lite(MessageSelector selector) throws Exception {
        DefaultLitePullConsumer consumer = newLite("ClientsLite" + selector.getExpressionType());
        consumer.subscribe(topic, selector);
        consumer.start();
        Set<String> seen = drain(consumer, selector.getExpressionType().equals("TAG") ? 27 : 15, 30);
        consumer.shutdown();
        return seen.size() + " " + seen;
    }

    static DefaultMQPushConsumer newPush(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("ClientsPush" + group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static void await(Set<String> seen, int wanted) throws Exception {
        // Routes that were not to be had at the start are asked for again after half a minute.
        long deadline = System.currentTimeMillis() + 75_000;
        while (seen.size() < wanted && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        Thread.sleep(300);
    }

    static String push(String group, MessageSelector selector, boolean isBroadcast, int wanted)
        throws Exception {
        DefaultMQPushConsumer consumer = newPush(group);
        if (isBroadcast) {
            broadcast(consumer);
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicInteger count = new AtomicInteger();
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
                count.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        try {
            consumer.start();
            await(seen, wanted);
        } finally {
            consumer.shutdown();
        }
        String listed = wanted < 40 ? " " + new TreeSet<>(seen) : "";
        return seen.size() + " once each: " + (seen.size() == count.get()) + listed;
    }

    /** The enum lives in another package in 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Class<Enum> models = (Class<Enum>) method.getParameterTypes()[0];
                method.invoke(consumer, Enum.valueOf(models, "BROADCASTING"));
            }
        }
    }

    /** A member of a broadcast stores its offsets in a file of its own, and resumes from there. */
    static String broadcastStore() throws Exception {
        StringBuilder result = new StringBuilder();
        for (int start = 0; start < 2; start++) {
            DefaultMQPushConsumer consumer = newPush("store");
            broadcast(consumer);
            Set<String> seen = ConcurrentHashMap.newKeySet();
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            await(seen, start == 0 ? 40 : 4);
            consumer.shutdown();
            result.append(seen.size()).append(" seen, stored ").append(storedOffsets()).append(", ");
            if (start == 0) {
                DefaultMQProducer producer = new DefaultMQProducer("ClientsStoreProducer");
                producer.setNamesrvAddr(nameServer);
                producer.setSendMsgTimeout(10_000);
                producer.start();
                List<MessageQueue> queues = queues(() -> producer.fetchPublishMessageQueues(topic));
                for (int i = 0; i < 4; i++) {
                    producer.send(message(100 + i), queues.get(i));
                }
                producer.shutdown();
            }
        }
        return result.toString();
    }

    static String storedOffsets() throws Exception {
        Path folder = Paths.get(System.getProperty("user.home"), ".rocketmq_offsets");
        try (Stream<Path> files = Files.walk(folder)) {
            Path file = files.filter(path -> path.endsWith("ClientsPushstore/offsets.json")).findFirst().get();
            Matcher offset = Pattern.compile("\\}\"?\\s*:\\s*(\\d+)").matcher(new String(Files.readAllBytes(file)));
            List<Integer> offsets = new ArrayList<>();
            while (offset.find()) {
                offsets.add(Integer.parseInt(offset.group(1)));
            }
            offsets.sort(null);
            return offsets.toString();
        }
    }

    static String orderly() throws Exception {
        DefaultMQPushConsumer consumer = newPush("orderly");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        ConcurrentHashMap<Integer, Long> last = new ConcurrentHashMap<>();
        AtomicInteger disorder = new AtomicInteger();
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                Long before = last.put(message.getQueueId(), message.getQueueOffset());
                if (before != null && before >= message.getQueueOffset()) {
                    disorder.incrementAndGet();
                }
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        await(seen, 40);
        consumer.shutdown();
        return seen.size() + ", out of order " + disorder.get();
    }

    static String retry() throws Exception {
        DefaultMQPushConsumer consumer = newPush("retry");
        Set<String> attempts = new ConcurrentSkipListSet<>();
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (body.equals("body-3") || body.equals("body-6")) {
                    attempts.add(body + " attempt " + message.getReconsumeTimes());
                    if (message.getReconsumeTimes() < 2) {
                        context.setDelayLevelWhenNextConsume(1);
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        await(attempts, 6);
        consumer.shutdown();
        return attempts.toString();
    }
}
