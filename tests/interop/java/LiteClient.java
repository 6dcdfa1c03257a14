import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.OffsetOption;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/** Lite topics by RocketMQ's gRPC client in Java: ENDPOINTS SCENARIO... ; each says what it saw. */
public class LiteClient {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final String PARENT = "chats";
    static ClientConfiguration configuration;
    static Producer producer;

    interface Scenario {
        String run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0])
            .setRequestTimeout(Duration.ofSeconds(20))
            .enableSsl(false)
            .build();
        producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(PARENT).build();
        Map<String, Scenario> scenarios = new HashMap<>();
        scenarios.put("lite", LiteClient::lite);
        scenarios.put("again", LiteClient::again);
        scenarios.put("order", LiteClient::order);
        scenarios.put("left", LiteClient::left);
        scenarios.put("taken", LiteClient::taken);
        scenarios.put("quota", LiteClient::quota);
        scenarios.put("begin", LiteClient::begin);
        scenarios.put("name", LiteClient::name);
        scenarios.put("kept", LiteClient::kept);
        List<Thread> threads = new ArrayList<>();
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

    static void send(String liteTopic, String... bodies) throws Exception {
        for (String body : bodies) {
            producer.send(PROVIDER.newMessageBuilder().setTopic(PARENT).setLiteTopic(liteTopic)
                .setBody(body.getBytes(StandardCharsets.UTF_8)).build());
        }
    }

    static String body(MessageView view) {
        byte[] content = new byte[view.getBody().remaining()];
        view.getBody().duplicate().get(content);
        return new String(content, StandardCharsets.UTF_8);
    }

    static LitePushConsumer consumer(String group, List<MessageView> got,
        Function<MessageView, ConsumeResult> consume) throws Exception {
        return PROVIDER.newLitePushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .bindTopic(PARENT)
            .setMessageListener(view -> {
                synchronized (got) {
                    got.add(view);
                }
                return consume.apply(view);
            })
            .build();
    }

    static List<MessageView> list() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    static boolean await(BooleanSupplier condition, double seconds) throws Exception {
        long deadline = System.currentTimeMillis() + (long) (seconds * 1_000);
        while (!condition.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
        return condition.getAsBoolean();
    }

    /** By lite topic, the bodies in the order they came. */
    static String shown(List<MessageView> got) {
        Map<String, List<String>> by = new TreeMap<>();
        synchronized (got) {
            for (MessageView view : got) {
                by.computeIfAbsent(view.getLiteTopic().orElse("none"), key -> new ArrayList<>())
                    .add(body(view));
            }
        }
        return by.toString();
    }

    /** The same where a consumer works on several at once. */
    static String sorted(List<MessageView> got) {
        List<MessageView> sorted = new ArrayList<>(got);
        sorted.sort((one, other) -> body(one).compareTo(body(other)));
        return shown(sorted);
    }

    static String lite() throws Exception {
        List<MessageView> got = list();
        send("lite-a", "0", "1");
        LitePushConsumer consumer = consumer("G-lite", got, view -> ConsumeResult.SUCCESS);
        consumer.subscribeLite("lite-a");
        consumer.subscribeLite("lite-b");
        send("lite-a", "2");
        send("lite-b", "0", "1");
        send("lite-c", "0");
        await(() -> got.size() >= 5, 20);
        Thread.sleep(500);
        String said = sorted(got);
        consumer.close();
        return said;
    }

    static String again() throws Exception {
        List<MessageView> got = list();
        LitePushConsumer consumer = consumer("G-again", got,
            view -> view.getDeliveryAttempt() < 3 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS);
        consumer.subscribeLite("again");
        send("again", "bad");
        await(() -> got.size() >= 3, 40);
        Thread.sleep(500);
        List<Integer> attempts = new ArrayList<>();
        for (MessageView view : got) {
            attempts.add(view.getDeliveryAttempt());
        }
        consumer.close();
        return "attempts " + attempts;
    }

    static String order() throws Exception {
        List<MessageView> got = list();
        Map<String, Integer> failed = Collections.synchronizedMap(new HashMap<>());
        LitePushConsumer consumer = consumer("G-order", got, view -> {
            boolean isFirst = body(view).equals("1") && failed.merge("1", 1, Integer::sum) == 1;
            return isFirst ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        });
        consumer.subscribeLite("order");
        send("order", "0", "1", "2", "3");
        await(() -> got.size() >= 5, 40);
        String said = shown(got);
        consumer.close();
        return said;
    }

    static String left() throws Exception {
        List<MessageView> got = list();
        LitePushConsumer consumer = consumer("G-left", got, view -> ConsumeResult.SUCCESS);
        consumer.subscribeLite("left");
        send("left", "0");
        await(() -> got.size() >= 1, 20);
        Thread.sleep(1_000);
        consumer.unsubscribeLite("left");
        send("left", "1");
        Thread.sleep(2_000);
        String before = shown(got);
        consumer.subscribeLite("left");
        await(() -> got.size() >= 2, 20);
        String said = before + " then " + shown(got);
        consumer.close();
        return said;
    }

    static String taken() throws Exception {
        List<MessageView> first = list();
        List<MessageView> second = list();
        LitePushConsumer one = consumer("G-exclusive", first, view -> ConsumeResult.SUCCESS);
        one.subscribeLite("taken");
        send("taken", "0");
        await(() -> first.size() >= 1, 20);
        LitePushConsumer two = consumer("G-exclusive", second, view -> ConsumeResult.SUCCESS);
        two.subscribeLite("taken");
        boolean isTold = await(() -> one.getLiteTopicSet().isEmpty(), 20);
        send("taken", "1");
        await(() -> second.size() >= 1, 20);
        String said = (isTold ? "told, " : "not told, ") + shown(first) + " and " + shown(second);
        one.close();
        two.close();
        return said;
    }

    static String quota() throws Exception {
        LitePushConsumer consumer = consumer("G-few", list(), view -> ConsumeResult.SUCCESS);
        String said = "none";
        try {
            consumer.subscribeLite("quota-1");
            consumer.subscribeLite("quota-2");
            consumer.subscribeLite("quota-3");
        } catch (ClientException error) {
            said = error.getClass().getSimpleName() + " at " + consumer.getLiteTopicSet().size();
        }
        consumer.close();
        return said;
    }

    static String begin() throws Exception {
        List<MessageView> got = list();
        send("begin", "0", "1", "2", "3");
        LitePushConsumer consumer = consumer("G-begin", got, view -> ConsumeResult.SUCCESS);
        consumer.subscribeLite("begin", OffsetOption.ofOffset(2));
        await(() -> got.size() >= 2, 20);
        Thread.sleep(500);
        String said = sorted(got);
        consumer.close();
        return said;
    }

    /** Somebody else sends two messages, and kills the broker between them. */
    static String kept() throws Exception {
        List<MessageView> got = list();
        LitePushConsumer consumer = consumer("G-lite", got, view -> ConsumeResult.SUCCESS);
        consumer.subscribeLite("kept");
        await(() -> got.size() >= 2, 150);
        String said = shown(got);
        consumer.close();
        return said;
    }

    static String name() throws Exception {
        try {
            send("not a name", "0");
        } catch (ClientException error) {
            return error.getMessage().contains("40020") ? "refused with 40020" : error.getMessage();
        }
        return "taken";
    }
}
