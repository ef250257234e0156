import java.time.Instant;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.accumulators.Histogram;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.accumulators.LongMaximum;
import org.apache.flink.api.common.accumulators.LongMinimum;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;

/** The source and the sink of benches/pyflink_stream.py, so that no Python runs but the two stages. */
public final class StreamEnds {
    private static final int PAYLOADS = 1024;
    private static final int PAYLOAD_LENGTH = 72;
    /** The unit of the latencies, in microseconds. */
    private static final int UNIT = 10;

    /** Adds the source; see {@link Numbers}. */
    public static DataStream<Tuple4<Long, Long, String, Long>> source(
            StreamExecutionEnvironment environment, long records, int keys, double rate) {
        return environment
                .addSource(new Numbers(records, keys, rate), "numbers")
                .returns(Types.TUPLE(Types.LONG, Types.LONG, Types.STRING, Types.LONG));
    }

    /** Adds the sink; see {@link Measure}. */
    public static void sink(
            DataStream<Tuple4<Long, Long, Long, Long>> stream,
            int keys,
            long warmRecords,
            double warmSeconds) {
        stream.addSink(new Measure(keys, warmRecords, (long) (warmSeconds * 1e6))).name("measure");
    }

    /** Returns the quantile of the accumulator "latency", in milliseconds. */
    public static double quantile(Map<Integer, Integer> latency, double share) {
        long all = latency.values().stream().mapToLong(Integer::longValue).sum();
        long seen = 0;
        for (Map.Entry<Integer, Integer> entry : new TreeMap<>(latency).entrySet()) {
            seen += entry.getValue();
            if (seen >= share * all) {
                return entry.getKey() * UNIT / 1000.0;
            }
        }
        return Double.NaN;
    }

    private static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }

    /**
     * Makes records (key, event time, payload, time of creation): the key is a hash of the record's
     * number, the event time is the number in milliseconds, the creation is in microseconds since
     * 1970. With a rate above 0 it makes, once a millisecond, all records that are due.
     */
    static final class Numbers extends RichParallelSourceFunction<Tuple4<Long, Long, String, Long>> {
        private final long records;
        private final int keys;
        private final double rate;
        private volatile boolean cancelled;

        Numbers(long records, int keys, double rate) {
            this.records = records;
            this.keys = keys;
            this.rate = rate;
        }

        @Override
        public void run(SourceContext<Tuple4<Long, Long, String, Long>> context) {
            String[] payloads = new String[PAYLOADS];
            Arrays.setAll(payloads, index -> String.format("%" + PAYLOAD_LENGTH + "d", index));
            LongMaximum behind = new LongMaximum(0);
            getRuntimeContext().addAccumulator("behind", behind);
            int subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            long started = System.nanoTime();
            for (long n = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
                    n < records && !cancelled;
                    n += subtasks) {
                if (rate > 0) {
                    long due = started + (long) (n / rate * 1e9);
                    while (System.nanoTime() < due) {
                        LockSupport.parkNanos(1_000_000);
                    }
                    if (n >= records - subtasks) {
                        behind.add((System.nanoTime() - due) / 1000);
                    }
                }
                long key = (n * 0x9E3779B97F4A7C15L >>> 32) % keys;
                context.collect(Tuple4.of(key, n, payloads[(int) (n % PAYLOADS)], micros()));
            }
        }

        @Override
        public void cancel() {
            cancelled = true;
        }
    }

    /**
     * Takes rows (key, count, event time, time of creation), and adds up the greatest count of each
     * key. The last row of its share of the warm-up starts its clock. If the warm-up has seconds, it
     * takes the latency of each record that was made later than that after its first one.
     */
    static final class Measure extends RichSinkFunction<Tuple4<Long, Long, Long, Long>> {
        private final int keys;
        private final long warmRecords;
        private final long warmMicros;
        private final Histogram latency = new Histogram();
        private long[] counts;
        private long warm;
        private long rows;
        private long started;
        private long ended;
        private long timedFrom;

        Measure(int keys, long warmRecords, long warmMicros) {
            this.keys = keys;
            this.warmRecords = warmRecords;
            this.warmMicros = warmMicros;
        }

        @Override
        public void open(OpenContext context) {
            counts = new long[keys];
            int subtasks = getRuntimeContext().getTaskInfo().getNumberOfParallelSubtasks();
            warm = Math.max(1, warmRecords / subtasks);
            getRuntimeContext().addAccumulator("latency", latency);
        }

        @Override
        public void invoke(Tuple4<Long, Long, Long, Long> row, Context context) {
            ended = micros();
            if (++rows == warm) {
                started = ended;
            }
            int key = row.f0.intValue();
            counts[key] = Math.max(counts[key], row.f1);
            if (timedFrom == 0) {
                timedFrom = row.f3 + warmMicros;
            }
            if (warmMicros > 0 && row.f3 >= timedFrom) {
                latency.add((int) ((ended - row.f3) / UNIT));
            }
        }

        @Override
        public void finish() {
            LongCounter counted = new LongCounter();
            LongCounter measured = new LongCounter();
            LongCounter total = new LongCounter();
            LongMinimum first = new LongMinimum();
            LongMaximum last = new LongMaximum();
            getRuntimeContext().addAccumulator("rows", counted);
            getRuntimeContext().addAccumulator("measured", measured);
            getRuntimeContext().addAccumulator("total", total);
            getRuntimeContext().addAccumulator("first", first);
            getRuntimeContext().addAccumulator("last", last);
            counted.add(rows);
            total.add(Arrays.stream(counts).sum());
            if (rows > warm) {
                measured.add(rows - warm);
                first.add(started);
                last.add(ended);
            }
        }
    }
}
