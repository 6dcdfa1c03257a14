import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Many mqadmin commands in one process: each line of a file is one, its words parted by tabs. */
public class MqAdmin {
    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        speedUpShutdowns(Thread.currentThread());
        // 4.9 insists on a file of its own for its log.
        Path configuration = Paths.get(System.getProperty("rocketmq.home.dir"), "conf");
        Files.createDirectories(configuration);
        Files.write(configuration.resolve("logback_tools.xml"), "<configuration/>".getBytes());
        for (String line : Files.readAllLines(Paths.get(arguments[0]))) {
            System.out.println("=== " + line.replace('\t', ' '));
            try {
                forgetCommands();
                MQAdminStartup.main0(line.split("\t"), null);
            } catch (Throwable error) {
                error.printStackTrace();
            }
            System.out.flush();
        }
        System.exit(0);
    }

    /**
     * A client that shuts down waits for threads of its own that look up every 3 s, or 20 s after
     * a lost wake-up: some fifty clients one after the other. Here they end at once.
     */
    static void speedUpShutdowns(Thread commands) {
        Thread waker = new Thread(() -> {
            while (commands.isAlive()) {
                for (StackTraceElement call : commands.getStackTrace()) {
                    if (call.getClassName().endsWith(".ServiceThread") && call.getMethodName().equals("shutdown")) {
                        wakeWaiting();
                        break;
                    }
                }
                LockSupport.parkNanos(20_000_000);
            }
        }, "waker");
        waker.setDaemon(true);
        waker.start();
    }

    static void wakeWaiting() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().matches("(NettyEventExecutor|RebalanceService|PullMessageService).*")) {
                thread.interrupt();
            }
        }
    }

    /** Commands keep clients that they have shut down; each call recreates its list of them. */
    static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
