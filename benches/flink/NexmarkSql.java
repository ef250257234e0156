import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.flink.api.java.typeutils.RowTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Runs SQL of benches/nexmark/flink.py on a mini cluster in this process. Each line of the input has a command, the path of a
 * script and the parallelism. A script begins with options, "SET name=value". Its last statement is the job: "run" prints its milliseconds; "collect" is
 * for a SELECT, whose changes it writes to a file beside the script, and prints their number. With "run-stream" and "collect-stream" the last
 * statement is the name of a query of {@link NexmarkStreams}.
 */
public final class NexmarkSql {
    /** The function of q14. */
    public static final class CountChar extends ScalarFunction {
        public long eval(String text, String letter) {
            long count = 0;
            if (text != null) {
                char wanted = letter.charAt(0);
                for (int index = 0; index < text.length(); index++) {
                    if (text.charAt(index) == wanted) {
                        count++;
                    }
                }
            }
            return count;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ANSWER ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split("\t");
            try {
                long answer = answer(order[0], Path.of(order[1]), Integer.parseInt(order[2]));
                System.out.println("ANSWER " + answer);
            } catch (Exception error) {
                error.printStackTrace();
                System.out.println("ANSWER failed");
            }
        }
    }

    private static long answer(String command, Path script, int parallelism) throws Exception {
        String[] statements = Files.readString(script).split(";\n");
        Configuration options = new Configuration();
        int first = 0;
        for (; statements[first].startsWith("SET "); first++) {
            String[] option = statements[first].substring(4).split("=", 2);
            options.setString(option[0], option[1]);
        }
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, options);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.createTemporarySystemFunction("count_char", CountChar.class);
        for (int index = first; index < statements.length - 1; index++) {
            tables.executeSql(statements[index]);
        }
        String job = statements[statements.length - 1];
        long started = System.nanoTime();
        if (command.equals("run")) {
            tables.executeSql(job).await();
            return (System.nanoTime() - started) / 1_000_000;
        }
        if (command.equals("run-stream")) {
            NexmarkStreams.result(job, tables).sinkTo(new DiscardingSink<>());
            environment.execute(job);
            return (System.nanoTime() - started) / 1_000_000;
        }
        Path file = Path.of(script + ".changes");
        if (command.equals("collect-stream")) {
            DataStream<Row> result = NexmarkStreams.result(job, tables);
            String[] names = ((RowTypeInfo) result.getType()).getFieldNames();
            return written(file, List.of(names), result.executeAndCollect());
        }
        TableResult result = tables.executeSql(job);
        return written(file, result.getResolvedSchema().getColumnNames(), result.collect());
    }

    /** Writes changes to a file; returns their number. */
    private static long written(Path file, List<String> names, CloseableIterator<Row> result)
            throws Exception {
        long rows = 0;
        try (CloseableIterator<Row> changes = result;
                BufferedWriter writer = Files.newBufferedWriter(file)) {
            writer.write("kind\t" + String.join("\t", names) + "\n");
            while (changes.hasNext()) {
                Row row = changes.next();
                writer.write(row.getKind().shortString());
                for (int field = 0; field < row.getArity(); field++) {
                    writer.write("\t" + row.getField(field));
                }
                writer.write("\n");
                rows++;
            }
        }
        return rows;
    }
}
