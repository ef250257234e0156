import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.accumulators.LongMaximum;
import org.apache.flink.api.common.accumulators.LongMinimum;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;

/**
 * One source, keyBy, two sinks that count. Reads "longs NUMBER" or "rows NUMBER" from standard
 * input, runs the job on the cluster at 127.0.0.1:PORT, and answers with a line "MILLISECONDS
 * RECORDS": from the first record that the source makes to the last that a sink has seen.
 */
public final class KeyedExchange {
    private static final int KEYS = 1 << 16;
    private static final int CONSUMERS = 2;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            StreamExecutionEnvironment environment =
                    StreamExecutionEnvironment.createRemoteEnvironment("127.0.0.1", port, arguments[1]);
            environment.getConfig().enableObjectReuse();
            long number = Long.parseLong(order[1]);
            if (order[0].equals("longs")) {
                job(environment, new Longs(number), Types.LONG, key -> key);
            } else {
                job(
                        environment,
                        new Rows(number),
                        Types.TUPLE(Types.LONG, Types.LONG, Types.DOUBLE, Types.DOUBLE),
                        row -> row.f0);
            }
            JobExecutionResult result = environment.execute("keyed exchange");
            long started = result.getAccumulatorResult("started");
            long ended = result.getAccumulatorResult("ended");
            long records = result.getAccumulatorResult("records");
            System.out.println((ended - started) + " " + records);
        }
    }

    private static <T> void job(
            StreamExecutionEnvironment environment,
            Made<T> source,
            TypeInformation<T> type,
            KeySelector<T, Long> key) {
        // Tasks of different slot sharing groups never share a slot, and each TaskManager has one slot.
        environment
                .addSource(source, type)
                .setParallelism(1)
                .slotSharingGroup("producer")
                .keyBy(key, Types.LONG)
                .addSink(new Count<>())
                .setParallelism(CONSUMERS)
                .slotSharingGroup("consumers");
    }

    /** Makes records of random keys as fast as they are taken; the keys were drawn before. */
    abstract static class Made<T> extends RichSourceFunction<T> {
        private final long number;
        private volatile boolean cancelled;

        Made(long number) {
            this.number = number;
        }

        abstract T record(long key, long number);

        @Override
        public void run(SourceContext<T> context) {
            long[] keys = new Random(42).longs(KEYS, 0, 1L << 40).toArray();
            LongMinimum started = new LongMinimum();
            getRuntimeContext().addAccumulator("started", started);
            started.add(System.currentTimeMillis());
            for (long i = 0; i < number && !cancelled; i++) {
                context.collect(record(keys[(int) (i % KEYS)], i));
            }
        }

        @Override
        public void cancel() {
            cancelled = true;
        }
    }

    static final class Longs extends Made<Long> {
        Longs(long number) {
            super(number);
        }

        @Override
        Long record(long key, long number) {
            return key;
        }
    }

    static final class Rows extends Made<Tuple4<Long, Long, Double, Double>> {
        // Nothing is chained to the source, so its records go straight to the record writer.
        private final Tuple4<Long, Long, Double, Double> row = new Tuple4<>();

        Rows(long number) {
            super(number);
        }

        @Override
        Tuple4<Long, Long, Double, Double> record(long key, long number) {
            row.setFields(key, number, number * 0.5, number * 0.25);
            return row;
        }
    }

    static final class Count<T> extends RichSinkFunction<T> {
        private long records;

        @Override
        public void invoke(T value, Context context) {
            records++;
        }

        @Override
        public void finish() {
            LongCounter counted = new LongCounter();
            LongMaximum ended = new LongMaximum();
            getRuntimeContext().addAccumulator("records", counted);
            getRuntimeContext().addAccumulator("ended", ended);
            counted.add(records);
            ended.add(System.currentTimeMillis());
        }
    }
}
