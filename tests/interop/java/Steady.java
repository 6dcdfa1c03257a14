import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends numbers until its input ends: NAME_SERVER TOPIC. Each is sent until a broker acknowledges it,
 * and printed then: "SENT 7". The last line is "END".
 */
public class Steady {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("steady");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(2_000);
        producer.start();
        for (int number = 0; System.in.available() == 0; number++) {
            Message message =
                new Message(arguments[1], Integer.toString(number).getBytes(StandardCharsets.UTF_8));
            while (!isSent(producer, message)) {
                Thread.sleep(100);
            }
            System.out.println("SENT " + number);
            Thread.sleep(5);
        }
        producer.shutdown();
        System.out.println("END");
        System.exit(0);
    }

    private static boolean isSent(DefaultMQProducer producer, Message message) throws Exception {
        try {
            return producer.send(message).getSendStatus() == SendStatus.SEND_OK;
        } catch (InterruptedException error) {
            throw error;
        } catch (Exception error) {
            System.err.println(error);
            return false;
        }
    }
}
