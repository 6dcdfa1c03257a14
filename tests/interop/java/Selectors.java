

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** What RocketMQ's own parser and evaluator say: "refused", or a digit for every message. */
public class Selectors {
    static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    /** Lines "E base64" are expressions, "M name value name value ..." messages before them. */
    public static void main(String[] arguments) throws Exception {
        java.util.List<Map<String, String>> messages = new java.util.ArrayList<>();
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(arguments[0]))) {
            String[] parts = line.split(" ", -1);
            if (parts[0].equals("M")) {
                Map<String, String> properties = new HashMap<>();
                for (int i = 1; i + 1 < parts.length; i += 2) {
                    properties.put(text(parts[i]), text(parts[i + 1]));
                }
                messages.add(properties);
                continue;
            }
            out.append(answers(text(parts[1]), messages)).append('\n');
        }
        System.out.print(out);
    }

    static String answers(String expression, java.util.List<Map<String, String>> messages) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(expression);
        } catch (Throwable error) {
            return "refused";
        }
        StringBuilder answers = new StringBuilder();
        for (Map<String, String> properties : messages) {
            Object result = null;
            try {
                result = compiled.evaluate(new EvaluationContext() {
                    @Override
                    public Object get(String name) {
                        return properties.get(name);
                    }

                    @Override
                    public Map<String, Object> keyValues() {
                        return new HashMap<>(properties);
                    }
                });
            } catch (Throwable error) {
                // As the broker: what cannot be evaluated does not match.
            }
            answers.append(Boolean.TRUE.equals(result) ? '1' : '0');
        }
        return answers.toString();
    }
}
