import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** RocketMQ's gRPC client in Java at work: ENDPOINTS SCENARIO... ; each says what it saw. */
public class PublicClient {
    static final int COUNT = 12;
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration configuration;

    interface Scenario {
        String run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0])
            // Patient: a send that is repeated for lack of an answer would be there twice.
            .setRequestTimeout(Duration.ofSeconds(20))
            .enableSsl(System.getenv("WITH_TLS") != null);
        if (System.getenv("ACCESS_KEY") != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                System.getenv("ACCESS_KEY"), System.getenv("SECRET_KEY")));
        }
        configuration = builder.build();
        Map<String, Scenario> scenarios = new HashMap<>();
        scenarios.put("simple", PublicClient::simple);
        scenarios.put("tags", PublicClient::tags);
        scenarios.put("again", PublicClient::again);
        scenarios.put("push", PublicClient::push);
        scenarios.put("retry", PublicClient::retry);
        scenarios.put("fifo", PublicClient::fifo);
        scenarios.put("delay", PublicClient::delay);
        scenarios.put("recall", PublicClient::recall);
        scenarios.put("transaction", PublicClient::transaction);
        List<Thread> threads = new ArrayList<>();
        // Side by side: most of them wait for something.
        for (int i = 1; i < arguments.length; i++) {
            String name = arguments[i];
            Thread thread = new Thread(() -> {
                String result;
                try {
                    result = scenarios.get(name).run();
                } catch (Throwable error) {
                    error.printStackTrace();
                    result = "FAILED " + error.toString().replace('\n', ' ');
                }
                System.out.println(name + ": " + result);
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static MessageBuilder message(String topic, int number) {
        return PROVIDER.newMessageBuilder()
            .setTopic(topic)
            .setBody(("body-" + number).getBytes(StandardCharsets.UTF_8))
            .setTag(number % 2 == 1 ? "TagA" : "TagB")
            .setKeys("key-" + number)
            .addProperty("n", Integer.toString(number));
    }

    static Producer producer(String topic, TransactionChecker checker) throws Exception {
        var builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
        if (checker != null) {
            builder.setTransactionChecker(checker);
        }
        return builder.build();
    }

    static void until(BooleanSupplier condition, int seconds) throws Exception {
        long deadline = System.currentTimeMillis() + seconds * 1_000L;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        Thread.sleep(500);
    }

    static String said(boolean claim) {
        return claim ? "True" : "False";
    }

    static String body(MessageView view) {
        byte[] content = new byte[view.getBody().remaining()];
        view.getBody().duplicate().get(content);
        return new String(content, StandardCharsets.UTF_8);
    }

    static List<String> bodies(List<MessageView> views) {
        List<String> bodies = new ArrayList<>();
        synchronized (views) {
            for (MessageView view : views) {
                bodies.add(body(view));
            }
        }
        Collections.sort(bodies);
        return bodies;
    }

    static String quoted(Iterable<String> texts) {
        List<String> quoted = new ArrayList<>();
        texts.forEach(text -> quoted.add("'" + text + "'"));
        return quoted.toString();
    }

    static String summary(List<String> bodies, int count) {
        List<String> expected = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            expected.add("body-" + i);
        }
        Collections.sort(expected);
        return bodies.size() + " messages, as sent: " + said(bodies.equals(expected));
    }

    interface Decision {
        void settle(SimpleConsumer consumer, MessageView view) throws Exception;
    }

    /** A simple consumer in a thread of its own. */
    static class Receiver {
        final List<MessageView> got = Collections.synchronizedList(new ArrayList<>());
        final Map<String, Long> times = Collections.synchronizedMap(new HashMap<>());
        final SimpleConsumer consumer;
        volatile boolean isOver;

        Receiver(String topic, String tags, Decision decision) throws Exception {
            consumer = PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration)
                .setConsumerGroup("G-" + topic)
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression(tags)))
                .build();
            Thread thread = new Thread(() -> {
                while (!isOver) {
                    try {
                        for (MessageView view : consumer.receive(16, Duration.ofSeconds(10))) {
                            times.put(body(view), System.currentTimeMillis());
                            got.add(view);
                            decision.settle(consumer, view);
                        }
                    } catch (Exception error) {
                        if (!isOver) {
                            error.printStackTrace();
                        }
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
            // A new group begins behind the newest message: it must have asked once.
            Thread.sleep(2_000);
        }

        void close() throws Exception {
            isOver = true;
            consumer.close();
        }
    }

    static String simple() throws Exception {
        Receiver receiver = new Receiver("simple", "*", SimpleConsumer::ack);
        Producer producer = producer("simple", null);
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < COUNT; i++) {
            ids.add(producer.send(message("simple", i).build()).getMessageId().toString());
        }
        until(() -> receiver.got.size() >= COUNT, 30);
        Set<String> gotIds = new HashSet<>();
        boolean whole = true;
        for (MessageView view : receiver.got) {
            gotIds.add(view.getMessageId().toString());
            whole &= view.getTopic().equals("simple") && view.getDeliveryAttempt() == 1
                && view.getKeys().contains("key-" + view.getProperties().get("n"))
                && view.getTag().get().startsWith("Tag") && !view.getBornHost().isEmpty();
        }
        producer.close();
        receiver.close();
        return summary(bodies(receiver.got), COUNT) + ", ids kept " + said(ids.equals(gotIds)) + ", whole " + said(whole);
    }

    static String tags() throws Exception {
        Receiver receiver = new Receiver("tags", "TagA", SimpleConsumer::ack);
        Producer producer = producer("tags", null);
        for (int i = 0; i < COUNT; i++) {
            producer.send(message("tags", i).build());
        }
        until(() -> receiver.got.size() >= COUNT / 2, 30);
        producer.close();
        receiver.close();
        Set<String> tags = new TreeSet<>();
        receiver.got.forEach(view -> tags.add(view.getTag().get()));
        return receiver.got.size() + " messages, tags " + quoted(tags);
    }

    static String again() throws Exception {
        List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
        List<Long> times = Collections.synchronizedList(new ArrayList<>());
        Receiver receiver = new Receiver("again", "*", (consumer, view) -> {
            times.add(System.currentTimeMillis());
            attempts.add(view.getDeliveryAttempt());
            if (attempts.size() == 1) {
                consumer.changeInvisibleDuration(view, Duration.ofSeconds(11));
            } else {
                consumer.ack(view);
            }
        });
        Producer producer = producer("again", null);
        producer.send(message("again", 0).build());
        until(() -> attempts.size() >= 2, 40);
        producer.close();
        receiver.close();
        long apart = times.size() > 1 ? times.get(1) - times.get(0) : 0;
        return "attempts " + attempts + ", not early " + said(apart >= 10_500);
    }

    static PushConsumer push(String topic, List<MessageView> got, Function<MessageView, ConsumeResult> consume)
        throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("G-" + topic)
            .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression("*")))
            .setMessageListener(view -> {
                got.add(view);
                return consume.apply(view);
            })
            .build();
        Thread.sleep(7_000);
        return consumer;
    }

    static String push() throws Exception {
        List<MessageView> got = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = push("push", got, view -> ConsumeResult.SUCCESS);
        Producer producer = producer("push", null);
        for (int i = 0; i < COUNT; i++) {
            producer.send(message("push", i).build());
        }
        until(() -> got.size() >= COUNT, 30);
        consumer.close();
        producer.close();
        return summary(bodies(got), COUNT);
    }

    static String retry() throws Exception {
        List<MessageView> got = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = push("retry", got,
            view -> view.getDeliveryAttempt() < 2 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS);
        Producer producer = producer("retry", null);
        producer.send(message("retry", 0).build());
        until(() -> got.size() >= 2, 60);
        consumer.close();
        producer.close();
        List<Integer> attempts = new ArrayList<>();
        got.forEach(view -> attempts.add(view.getDeliveryAttempt()));
        return "attempts " + attempts;
    }

    static String fifo() throws Exception {
        List<MessageView> got = Collections.synchronizedList(new ArrayList<>());
        PushConsumer consumer = push("fifo", got, view -> ConsumeResult.SUCCESS);
        Producer producer = producer("fifo", null);
        for (int i = 0; i < COUNT; i++) {
            producer.send(message("fifo", i).setMessageGroup("group-" + i % 3).build());
        }
        until(() -> got.size() >= COUNT, 30);
        consumer.close();
        producer.close();
        Map<String, Integer> last = new HashMap<>();
        boolean inOrder = true;
        for (MessageView view : got) {
            int number = Integer.parseInt(view.getProperties().get("n"));
            Integer before = last.put(view.getMessageGroup().get(), number);
            inOrder &= before == null || before < number;
        }
        return summary(bodies(got), COUNT) + ", in order " + said(inOrder);
    }

    static String delay() throws Exception {
        Receiver receiver = new Receiver("delay", "*", SimpleConsumer::ack);
        Producer producer = producer("delay", null);
        Map<String, Long> due = new HashMap<>();
        for (int i = 0; i < 4; i++) {
            long at = System.currentTimeMillis() / 1_000 * 1_000 + (2 + i) * 1_000L;
            due.put("body-" + i, at);
            producer.send(message("delay", i).setDeliveryTimestamp(at).build());
        }
        until(() -> receiver.got.size() >= 4, 30);
        producer.close();
        receiver.close();
        long early = receiver.times.entrySet().stream().filter(one -> one.getValue() < due.get(one.getKey())).count();
        return summary(bodies(receiver.got), 4) + ", early " + early;
    }

    static String recall() throws Exception {
        Receiver receiver = new Receiver("recall", "*", SimpleConsumer::ack);
        Producer producer = producer("recall", null);
        long at = System.currentTimeMillis() + 10_000;
        SendReceipt kept = producer.send(message("recall", 0).setDeliveryTimestamp(at).build());
        SendReceipt gone = producer.send(message("recall", 1).setDeliveryTimestamp(at).build());
        String recalled = producer.recallMessage("recall", gone.getRecallHandle()).getMessageId().toString();
        until(() -> receiver.got.size() >= 2, 16);
        producer.close();
        receiver.close();
        boolean same = recalled.equals(gone.getMessageId().toString());
        return "recalled " + said(same) + ", came " + quoted(bodies(receiver.got)) + ", handles "
            + said(!kept.getRecallHandle().isEmpty());
    }

    /** Committed, rolled back, and two that only the broker's question decides. */
    static String transaction() throws Exception {
        Receiver receiver = new Receiver("transaction", "*", SimpleConsumer::ack);
        Producer producer = producer("transaction", view ->
            Integer.parseInt(view.getProperties().get("n")) % 2 == 0
                ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK);
        for (int i = 0; i < 4; i++) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("transaction", i).build(), transaction);
            if (i == 0) {
                transaction.commit();
            } else if (i == 1) {
                transaction.rollback();
            }
        }
        until(() -> bodies(receiver.got).containsAll(List.of("body-0", "body-2")), 60);
        Thread.sleep(2_000);
        producer.close();
        receiver.close();
        // A broker that asks before it knows of the commit delivers twice.
        return "came " + quoted(new TreeSet<>(bodies(receiver.got)));
    }
}
